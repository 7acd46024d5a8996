//! What `crossdock new` makes builds, loads, passes its own test, and is used beside the plugins of ours.

use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arrow_array::Int32Array;
use arrow_schema::DataType;
use crossdock::Table;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{assert_refused, built_file, cargo, command, crossdock};

use crate::third_parties::trees::{decoded, host, session};

/// An empty folder for a test's projects. Its path is the same in each run, because Cargo identifies packages by path
/// and would build them again. The steps `rust` and `sim-cuda` run these tests at the same time: one has the folder.
struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

fn folder(test: &str) -> Folder {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("third-parties");
    std::fs::create_dir_all(&all).unwrap();
    let lock = File::create(all.join(format!("{test}.lock"))).unwrap();
    lock.lock().unwrap();
    let path = all.join(test);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir(&path).unwrap();
    Folder { path, _lock: lock }
}

/// The checkout that this was built in, unless it runs elsewhere.
fn root(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok();
    if root.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: there is no checkout to build against");
    }
    root
}

fn new(folder: &Path, arguments: &[&str]) -> Output {
    command(&[&["new"], arguments].concat()).current_dir(folder).output().unwrap()
}

#[track_caller]
fn assert_done(out: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

/// What a program says; `None`, and a line about it, where this machine does not have it.
fn said_by(test: &str, command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(out) => Some(assert_done(&out)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy().into_owned();
            let _ = writeln!(std::io::stderr(), "skipped: {test}: there is no {program}");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// The plugin of a project in C, after its own test.
fn in_c(test: &str, folder: &Path, name: &str) -> Option<PathBuf> {
    let project = folder.join(name);
    let mut make = Command::new("make");
    make.arg("test").arg(format!("CROSSDOCK={}", built_file("crossdock").display())).current_dir(&project);
    // What was built with a sanitizer is not loaded by a program without.
    for variable in ["MAKEFLAGS", "MAKELEVEL", "CFLAGS", "LDFLAGS", "CROSSDOCK_PLUGIN_PATH"] {
        make.env_remove(variable);
    }
    said_by(test, &mut make)?;
    Some(project.join(format!("libcrossdock_{}_plugin.so", name.replace('-', "_"))))
}

/// The same of a project in Rust, with the versions that the workspace has, for nothing is fetched.
fn in_rust(test: &str, folder: &Path, name: &str) -> Option<PathBuf> {
    let (project, root) = (folder.join(name), root(test)?);
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let target = root.join("target/examples");
    for what in ["test", "build"] {
        let mut cargo = cargo();
        cargo.args([what, "--quiet", "--offline", "--target-dir"]).arg(&target).current_dir(&project);
        let said = said_by(test, &mut cargo)?;
        assert!(what != "test" || said.contains("2 passed"), "{said}");
    }
    Some(target.join(format!("debug/libcrossdock_{}_plugin.so", name.replace('-', "_"))))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// With the sample that lies in its project, all that it does is run.
fn assert_keeps_the_rules(plugin: &Path, sample: &Path) {
    let basic = ["verify", text(plugin), "--timeout", "120", "--seeds", "1", "--strict"];
    assert_done(&crossdock(&[&basic[..], &["--sample", text(sample)]].concat()));
    // Without one that is not so, and is said.
    let out = crossdock(&[&basic[..], &["--device", "cpu"]].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.code() == Some(1) && said.contains("\nnot exercised: "), "{said}");
}

/// What both languages' encodings decode: integers less a reference; here as the values of a dictionary of ours.
fn assert_decodes(plugin: &Path, id: &'static str, project: &Path) {
    let stored: Vec<u8> = [1i32, -2, 0].iter().flat_map(|value| value.to_ne_bytes()).collect();
    let values = Node {
        metadata: 1000i32.to_le_bytes().to_vec(),
        buffers: vec![stored],
        ..Node::new(id, DataType::Int32, 3)
    };
    let codes = Node::words(DataType::UInt8, &[2u8, 0, 1, 1], |byte| [byte]);
    let dictionary = Node {
        metadata: vec![0x08, 3],
        children: vec![codes, values],
        ..Node::new("vortex.dict", DataType::Int32, 4)
    };
    for &device in devices() {
        let session = session(plugin, device);
        for of_buffers in [Device::CPU, device] {
            let array = decoded(&session, dictionary.tree(&session, of_buffers));
            assert_eq!(*array, Int32Array::from(vec![1000, 1001, 998, 998]), "{device}");
        }
    }
    assert_keeps_the_rules(plugin, &project.join("sample.cdenc"));
    let explained = crossdock(&["plugins", "--explain", "--plugins", text(plugin)]);
    assert!(assert_done(&explained).contains(&format!("  decodes: {id}\n")));
}

/// What both languages' formats read: three lines are three rows.
fn assert_reads(plugin: &Path, folder: &Path, ending: &str) {
    let input = folder.join(format!("in.{ending}"));
    std::fs::write(&input, "1\n20\n300").unwrap();
    for &device in devices() {
        let session = host(plugin).session().device(device).open().unwrap();
        let table = Table::read(&session, &input).unwrap();
        assert_eq!(table.rows(), 3, "{device}");
    }
    assert_keeps_the_rules(plugin, &folder.join(ending).join(format!("sample.{ending}")));
    let output = folder.join("out.arrow");
    let out = crossdock(&["convert", text(&input), text(&output), "--plugins", text(plugin), "--quiet"]);
    assert_done(&out);
    assert!(output.exists());
}

#[test]
fn an_encoding_in_c_builds_loads_passes_and_decodes() {
    let test = "an_encoding_in_c_builds_loads_passes_and_decodes";
    let folder = folder("encoding-c");
    let said = assert_done(&new(&folder, &["made-c", "--language", "c", "--encoding", "made.c"]));
    assert!(said.contains("decodes made.c") && said.contains("cd made-c && make test"), "{said}");
    let Some(plugin) = in_c(test, &folder, "made-c") else { return };
    assert_decodes(&plugin, "made.c", &folder.join("made-c"));
}

#[test]
fn a_format_in_c_builds_loads_passes_and_is_read() {
    let folder = folder("format-c");
    assert_done(&new(&folder, &["lines-c", "--language", "c"]));
    let Some(plugin) = in_c("a_format_in_c_builds_loads_passes_and_is_read", &folder, "lines-c") else {
        return;
    };
    assert_reads(&plugin, &folder, "lines-c");
}

#[test]
fn an_encoding_in_rust_builds_loads_passes_and_decodes() {
    let test = "an_encoding_in_rust_builds_loads_passes_and_decodes";
    let folder = folder("encoding-rust");
    let Some(root) = root(test) else { return };
    let said =
        assert_done(&new(&folder, &["made-rust", "--encoding", "made.rust", "--checkout", text(&root)]));
    assert!(said.contains("decodes made.rust") && said.contains("cd made-rust && cargo test"), "{said}");
    let Some(plugin) = in_rust(test, &folder, "made-rust") else { return };
    assert_decodes(&plugin, "made.rust", &folder.join("made-rust"));
}

#[test]
fn a_format_in_rust_builds_loads_passes_and_is_read() {
    let test = "a_format_in_rust_builds_loads_passes_and_is_read";
    let folder = folder("format-rust");
    let Some(root) = root(test) else { return };
    assert_done(&new(&folder, &["numbers-rust", "--checkout", text(&root)]));
    let Some(plugin) = in_rust(test, &folder, "numbers-rust") else { return };
    assert_reads(&plugin, &folder, "numbers-rust");
    let wrong = folder.join("wrong.numbers-rust");
    std::fs::write(&wrong, "1\ntwo\n").unwrap();
    let output = folder.join("wrong.arrow");
    let out = crossdock(&["convert", text(&wrong), text(&output), "--plugins", text(&plugin), "--quiet"]);
    assert_refused(&out, &["numbers-rust 0.1.0", "line 2", "two"], &output);
}

#[test]
fn without_a_checkout_the_crates_are_those_of_the_command_s_release() {
    let folder = folder("release");
    assert_done(&new(&folder, &["released"]));
    let manifest = std::fs::read_to_string(folder.join("released/Cargo.toml")).unwrap();
    for name in ["crossdock", "crossdock-arrays", "crossdock-memory", "crossdock-plugin-api"] {
        let line = format!("\n{name} = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(manifest.contains(&line), "{manifest}");
    }
    let other_crates = ["path", "git"].iter().filter(|word| manifest.contains(*word)).count();
    assert_eq!(other_crates, 0, "{manifest}");
}

#[test]
fn what_cannot_be_made_is_refused_and_nothing_is_touched() {
    let folder = folder("refused");
    std::fs::create_dir(folder.join("there")).unwrap();
    std::fs::write(folder.join("there/precious"), "words").unwrap();
    let refusals: [(&[&str], &str); 6] = [
        (&["there"], "'there' exists already"),
        (&["there/inside"], "expected a-z, 0-9"),
        (&["Weather"], "expected a-z, 0-9"),
        (&["weather", "--encoding", "\"; drop"], "expected letters, digits"),
        (&["weather", "--checkout", text(&folder)], "/Cargo.toml; give the folder"),
        (&["weather", "--language", "c", "--checkout", text(&folder)], "a plugin in C needs no crates"),
    ];
    for (arguments, expected) in refusals {
        let out = new(&folder, arguments);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{stderr:?} does not contain {expected:?}");
    }
    let left: Vec<_> = std::fs::read_dir(&folder.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["there"]);
    assert_eq!(std::fs::read_to_string(folder.join("there/precious")).unwrap(), "words");
}
