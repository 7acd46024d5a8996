//! `examples/c-host` as a reader of its README would use it: installed by `cargo xtask capi`, made, run, and what it wrote
//! held against what it read. And the example of the library's README.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crossdock::Host;
use crossdock::discovery::Search;
use crossdock::source::Input;
use crossdock_arrays::{DeviceBatch, first_difference};

use crate::support::{built_file, cc, is_there, root, run, sample, skipped};

/// The prefix that `cargo xtask capi` laid out from what is built.
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

fn made() -> Option<&'static Path> {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    for program in ["make", "pkg-config"] {
        if !is_there(program) {
            skipped("examples/c-host", &format!("no {program}"));
            return None;
        }
    }
    let folder = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for file in ["main.c", "Makefile"] {
            std::fs::copy(root().join("examples/c-host").join(file), folder.path().join(file)).unwrap();
        }
        let mut make = Command::new("make");
        make.current_dir(folder.path()).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        run(&mut make);
        folder
    });
    Some(folder.path())
}

/// Without anything in the environment that would help it to find its library and its plugins.
fn plain(mut command: Command) -> Command {
    command.env_remove("LD_LIBRARY_PATH").env_remove("CROSSDOCK_PLUGIN_PATH");
    command
}

fn read(session: &crossdock::Session, path: &Path) -> Vec<DeviceBatch> {
    let input = Input::open(path, session.cancel_flag()).unwrap();
    session.read(input, &Default::default()).unwrap().collect::<Result<_, _>>().unwrap()
}

fn assert_the_same_table(left: &Path, right: &Path) {
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

const SAID: &str = "27004 rows in 4 batches; 0 bytes copied, 0 leaks\n";

#[test]
fn the_example_moves_the_sample_and_copies_no_column() {
    let Some(folder) = made() else { return };
    let out = folder.join("out.arrow");
    let mut command = plain(Command::new(folder.join("c-host")));
    assert_eq!(run(command.arg(sample()).arg(&out)), SAID);
    assert_the_same_table(&sample(), &out);
}

#[test]
fn the_example_is_clean_under_valgrind() {
    let Some(folder) = made() else { return };
    let program = folder.join("c-host");
    let Some(command) = crate::support::under_valgrind("the_example_is_clean_under_valgrind", &program)
    else {
        return;
    };
    let out = folder.join("valgrind.arrow");
    assert_eq!(run(plain(command).arg(sample()).arg(&out)), SAID);
    assert_the_same_table(&sample(), &out);
}

#[test]
fn the_example_says_what_went_wrong_and_leaves_no_file() {
    let Some(folder) = made() else { return };
    let text = folder.join("not-a-table.txt");
    std::fs::write(&text, "words").unwrap();
    let out = folder.join("never.arrow");
    let mut command = plain(Command::new(folder.join("c-host")));
    let done = command.arg(&text).arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error 2: no plugin recognises"), "{said}");
    assert!(!out.exists());
}

#[test]
fn the_readmes_example_counts_the_samples_rows() {
    let text = std::fs::read_to_string(root().join("capi/README.md")).unwrap();
    let (_, rest) = text.split_once("```c\n").expect("an example in C");
    let (example, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, program): (PathBuf, PathBuf) = (folder.path().join("app.c"), folder.path().join("app"));
    std::fs::write(&source, example).unwrap();
    let lib = prefix().join("lib");
    let mut cc = cc();
    cc.arg(&source).arg("-o").arg(&program).arg("-L").arg(&lib).arg("-lcrossdock");
    run(cc.arg(format!("-Wl,-rpath,{}", lib.display())));
    assert_eq!(run(plain(Command::new(&program)).arg(sample())), "27004 rows\n");
    let done = plain(Command::new(&program)).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stderr).contains("one file is expected"));
}
