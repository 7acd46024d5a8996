//! Builds and runs `examples/c-host` and `examples/cpp-host` with the prefix that `cargo xtask
//! capi` installs, and compares their output with their input. Also builds and runs the examples of
//! the README.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crossdock::Host;
use crossdock::discovery::Search;
use crossdock::source::Input;
use crossdock_arrays::{DeviceBatch, first_difference};

use crate::support::{built_file, cc, cxx_with, is_installed, root, run, sample, skipped};

/// The prefix that `cargo xtask capi` installs.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = PREFIX.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut xtask = Command::new(built_file("xtask"));
        let built = built_file("libcrossdock.so").parent().unwrap().to_path_buf();
        run(xtask.arg("capi").arg("--prefix").arg(folder.path()).arg("--built").arg(built));
        folder
    });
    folder.path()
}

/// Builds an example in a new folder. If a tool to build it is missing, reports that the example is
/// skipped and returns `None`.
fn build(example: &str, source: &str, tools: &[&str]) -> Option<tempfile::TempDir> {
    for tool in tools {
        if !is_installed(tool) {
            skipped(example, &format!("no {tool}"));
            return None;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    for file in [source, "Makefile"] {
        std::fs::copy(root().join(example).join(file), folder.path().join(file)).unwrap();
    }
    let mut make = Command::new("make");
    make.current_dir(folder.path()).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    run(&mut make);
    Some(folder)
}

/// Returns the folder of the built example in C, or `None` if a tool to build it is missing.
fn built_example() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| build("examples/c-host", "main.c", &["make", "pkg-config"]));
    folder.as_ref().map(tempfile::TempDir::path)
}

/// Removes environment variables that name libraries or plugins.
fn without_paths(mut command: Command) -> Command {
    command.env_remove("LD_LIBRARY_PATH").env_remove("CROSSDOCK_PLUGIN_PATH");
    command
}

fn read(session: &crossdock::Session, path: &Path) -> Vec<DeviceBatch> {
    let input = Input::open(path, session.cancel_flag()).unwrap();
    session.read(input, &Default::default()).unwrap().collect::<Result<_, _>>().unwrap()
}

fn assert_same_table(left: &Path, right: &Path) {
    let plugins = prefix().join("lib/crossdock/plugins");
    let host = Host::builder().search(Search::nowhere()).plugins(plugins).build().unwrap();
    let session = host.session().open().unwrap();
    let (left, right) = (read(&session, left), read(&session, right));
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(&right) {
        assert_eq!(left.schema(), right.schema());
        assert_eq!(first_difference(left, right, session.stream()).unwrap(), None);
    }
}

const EXPECTED_OUTPUT: &str = "27004 rows in 4 batches; 0 bytes copied, 0 leaks\n";

#[test]
fn example_converts_the_sample_without_copying_columns() {
    let Some(folder) = built_example() else { return };
    let out = folder.join("out.arrow");
    let mut command = without_paths(Command::new(folder.join("c-host")));
    assert_eq!(run(command.arg(sample()).arg(&out)), EXPECTED_OUTPUT);
    assert_same_table(&sample(), &out);
}

#[test]
fn example_is_clean_under_valgrind() {
    let Some(folder) = built_example() else { return };
    let program = folder.join("c-host");
    let Some(command) = crate::support::under_valgrind("example_is_clean_under_valgrind", &program) else {
        return;
    };
    let out = folder.join("valgrind.arrow");
    assert_eq!(run(without_paths(command).arg(sample()).arg(&out)), EXPECTED_OUTPUT);
    assert_same_table(&sample(), &out);
}

#[test]
fn example_reports_errors_and_leaves_no_file() {
    let Some(folder) = built_example() else { return };
    let text = folder.join("not-a-table.txt");
    std::fs::write(&text, "words").unwrap();
    let out = folder.join("absent.arrow");
    let mut command = without_paths(Command::new(folder.join("c-host")));
    let output = command.arg(&text).arg(&out).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error 2: no plugin recognises"), "{stderr}");
    assert!(!out.exists());
}

#[test]
fn cpp_example_copies_the_rows_that_fulfil_comparisons() {
    let Some(folder) = build("examples/cpp-host", "main.cpp", &["make", "pkg-config", "c++"]) else { return };
    let (program, out) = (folder.path().join("cpp-host"), folder.path().join("out.arrow"));
    let mut command = without_paths(Command::new(&program));
    command.arg(sample()).arg(&out).args(["dep_delay > 60", "carrier == UA"]);
    assert_eq!(run(&mut command), "194 rows of 21 columns\n0 bytes copied, 0 leaks\n");
    let plugins = prefix().join("lib/crossdock/plugins");
    let host = Host::builder().search(Search::nowhere()).plugins(plugins).build().unwrap();
    let rows: usize = read(&host.session().open().unwrap(), &out).iter().map(DeviceBatch::len).sum();
    assert_eq!(rows, 194);
    std::fs::remove_file(&out).unwrap();

    let mut command = without_paths(Command::new(&program));
    let output = command.arg(sample()).arg(&out).arg("delay > 60").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("there is no column 'delay'"), "{stderr}");
    assert!(!out.exists());
}

/// Compiles the first code block of the README in the given language. Returns the program.
fn readme_program(language: &str, mut compiler: Command, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(root().join("capi/README.md")).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("an example in the language");
    let (example, _) = rest.split_once("```").unwrap();
    let (source, program) = (folder.join(format!("app.{language}")), folder.join("app"));
    std::fs::write(&source, example).unwrap();
    let lib = prefix().join("lib");
    compiler.arg(&source).arg("-o").arg(&program).arg("-L").arg(&lib).arg("-lcrossdock");
    run(compiler.arg(format!("-Wl,-rpath,{}", lib.display())));
    program
}

#[test]
fn readme_examples_count_rows() {
    for (language, compiler) in [("c", Some(cc())), ("cpp", cxx_with("-std=c++20"))] {
        let Some(compiler) = compiler else {
            skipped("the example of the README in C++", "no C++ compiler (CXX, c++)");
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let program = readme_program(language, compiler, folder.path());
        assert_eq!(run(without_paths(Command::new(&program)).arg(sample())), "27004 rows\n", "{language}");
        let output = without_paths(Command::new(&program)).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("one file is expected"), "{stderr}");
    }
}
