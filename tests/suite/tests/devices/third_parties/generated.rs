//! Tests projects that `crossdock new` creates. They must build, load, pass their own tests, and
//! work together with the shipped plugins.

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
use crossdock_tests::{CASE_TIMEOUT_S, assert_rejected, built_file, cargo, command, crossdock};

use crate::third_parties::trees::{decoded, host, session};

/// An empty folder for the projects of a test. It is locked, because the steps `rust` and
/// `sim-cuda` run these tests at the same time. Its path is the same in each run, because Cargo
/// identifies packages by their paths.
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

/// The checkout from which this test was built, if it exists on this machine.
fn root(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok();
    if root.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no checkout to build against");
    }
    root
}

fn new(folder: &Path, arguments: &[&str]) -> Output {
    command(&[&["new"], arguments].concat()).current_dir(folder).output().unwrap()
}

#[track_caller]
fn assert_success(out: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

/// The output of a program. If the program is not installed, reports that the test is skipped and
/// returns `None`.
fn output_of(test: &str, command: &mut Command) -> Option<String> {
    match command.output() {
        Ok(out) => Some(assert_success(&out)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy().into_owned();
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {program} is not installed");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Runs the test of a C project. Returns its plugin.
fn build_c(test: &str, folder: &Path, name: &str) -> Option<PathBuf> {
    let project = folder.join(name);
    let mut make = Command::new("make");
    make.arg("test").arg(format!("CROSSDOCK={}", built_file("crossdock").display())).current_dir(&project);
    // The plugin is linked without a sanitizer, because a program without a sanitizer cannot load a
    // library that uses one.
    for variable in ["MAKEFLAGS", "MAKELEVEL", "CFLAGS", "LDFLAGS", "CROSSDOCK_PLUGIN_PATH"] {
        make.env_remove(variable);
    }
    output_of(test, &mut make)?;
    Some(project.join(format!("libcrossdock_{}_plugin.so", name.replace('-', "_"))))
}

/// Runs the `n` tests of a Rust project. Returns its plugin. Uses the workspace's Cargo.lock,
/// because Cargo runs offline and has only the packages that this file lists.
fn build_rust(test: &str, folder: &Path, name: &str, n: usize) -> Option<PathBuf> {
    let (project, root) = (folder.join(name), root(test)?);
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let target = root.join("target/examples");
    for what in ["test", "build"] {
        let mut cargo = cargo();
        cargo.args([what, "--quiet", "--offline", "--target-dir"]).arg(&target).current_dir(&project);
        let output = output_of(test, &mut cargo)?;
        assert!(what != "test" || output.contains(&format!("{n} passed")), "{output}");
    }
    Some(target.join(format!("debug/libcrossdock_{}_plugin.so", name.replace('-', "_"))))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Verifies a plugin with and without the sample of its project. With the sample, every part must
/// be exercised.
fn assert_passes_verify(plugin: &Path, sample: &Path) {
    let basic = ["verify", text(plugin), "--timeout", CASE_TIMEOUT_S, "--seeds", "1", "--strict"];
    assert_success(&crossdock(&[&basic[..], &["--sample", text(sample)]].concat()));
    // Without a sample, the report lists what was not exercised.
    let out = crossdock(&[&basic[..], &["--device", "cpu"]].concat());
    let output = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.code() == Some(1) && output.contains("\nnot exercised: "), "{output}");
}

/// Asserts that an encoding from a template decodes integers that are stored as differences from a
/// reference. The integers are the values of a dictionary.
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
    assert_passes_verify(plugin, &project.join("sample.cdenc"));
    let explained = crossdock(&["plugins", "--explain", "--plugins", text(plugin)]);
    assert!(assert_success(&explained).contains(&format!("  decodes: {id}\n")));
}

/// Asserts that a format from a template reads three lines as three rows.
fn assert_reads(plugin: &Path, folder: &Path, extension: &str) {
    let input = folder.join(format!("in.{extension}"));
    std::fs::write(&input, "1\n20\n300").unwrap();
    for &device in devices() {
        let session = host(plugin).session().device(device).open().unwrap();
        let table = Table::read(&session, &input).unwrap();
        assert_eq!(table.rows(), 3, "{device}");
    }
    assert_passes_verify(plugin, &folder.join(extension).join(format!("sample.{extension}")));
    let output = folder.join("out.arrow");
    let out = crossdock(&["convert", text(&input), text(&output), "--plugins", text(plugin), "--quiet"]);
    assert_success(&out);
    assert!(output.exists());
}

#[test]
fn c_encoding_template_builds_passes_verify_and_decodes() {
    let test = "c_encoding_template_builds_passes_verify_and_decodes";
    let folder = folder("encoding-c");
    let output =
        assert_success(&new(&folder, &["generated-c", "--language", "c", "--encoding", "generated.c"]));
    assert!(
        output.contains("decodes generated.c") && output.contains("cd generated-c && make test"),
        "{output}"
    );
    let Some(plugin) = build_c(test, &folder, "generated-c") else { return };
    assert_decodes(&plugin, "generated.c", &folder.join("generated-c"));
}

#[test]
fn c_format_template_builds_passes_verify_and_reads() {
    let folder = folder("format-c");
    assert_success(&new(&folder, &["lines-c", "--language", "c"]));
    let Some(plugin) = build_c("c_format_template_builds_passes_verify_and_reads", &folder, "lines-c") else {
        return;
    };
    assert_reads(&plugin, &folder, "lines-c");
}

#[test]
fn rust_encoding_template_builds_passes_verify_and_decodes() {
    let test = "rust_encoding_template_builds_passes_verify_and_decodes";
    let folder = folder("encoding-rust");
    let Some(root) = root(test) else { return };
    let output = assert_success(&new(
        &folder,
        &["generated-rust", "--encoding", "generated.rust", "--checkout", text(&root)],
    ));
    assert!(
        output.contains("decodes generated.rust") && output.contains("cd generated-rust && cargo test"),
        "{output}"
    );
    let Some(plugin) = build_rust(test, &folder, "generated-rust", 3) else { return };
    assert_decodes(&plugin, "generated.rust", &folder.join("generated-rust"));
}

#[test]
fn rust_format_template_builds_passes_verify_and_reads() {
    let test = "rust_format_template_builds_passes_verify_and_reads";
    let folder = folder("format-rust");
    let Some(root) = root(test) else { return };
    assert_success(&new(&folder, &["numbers-rust", "--checkout", text(&root)]));
    let Some(plugin) = build_rust(test, &folder, "numbers-rust", 2) else { return };
    assert_reads(&plugin, &folder, "numbers-rust");
    let wrong = folder.join("wrong.numbers-rust");
    std::fs::write(&wrong, "1\ntwo\n").unwrap();
    let output = folder.join("wrong.arrow");
    let out = crossdock(&["convert", text(&wrong), text(&output), "--plugins", text(&plugin), "--quiet"]);
    assert_rejected(&out, &["numbers-rust 0.1.0", "line 2", "two"], &output);
}

#[test]
fn projects_without_a_checkout_depend_on_released_crates() {
    let folder = folder("release");
    assert_success(&new(&folder, &["released"]));
    let manifest = std::fs::read_to_string(folder.join("released/Cargo.toml")).unwrap();
    for name in ["crossdock", "crossdock-arrays", "crossdock-memory", "crossdock-plugin-api"] {
        let line = format!("\n{name} = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(manifest.contains(&line), "{manifest}");
    }
    let other_crates = ["path", "git"].iter().filter(|word| manifest.contains(*word)).count();
    assert_eq!(other_crates, 0, "{manifest}");
}

#[test]
fn rejects_invalid_projects_without_touching_files() {
    let folder = folder("rejected");
    std::fs::create_dir(folder.join("existing")).unwrap();
    std::fs::write(folder.join("existing/precious"), "words").unwrap();
    let rejected: [(&[&str], &str); 6] = [
        (&["existing"], "'existing' already exists"),
        (&["existing/inside"], "characters a-z, 0-9 and single -"),
        (&["Weather"], "characters a-z, 0-9 and single -"),
        (&["weather", "--encoding", "\"; drop"], "expected OWNER.NAME"),
        (&["weather", "--checkout", text(&folder)], "/Cargo.toml; expected the root folder"),
        (&["weather", "--language", "c", "--checkout", text(&folder)], "--checkout cannot be used"),
    ];
    for (arguments, expected) in rejected {
        let out = new(&folder, arguments);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{stderr:?} does not contain {expected:?}");
    }
    let files: Vec<_> =
        std::fs::read_dir(&folder.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["existing"]);
    assert_eq!(std::fs::read_to_string(folder.join("existing/precious")).unwrap(), "words");
}
