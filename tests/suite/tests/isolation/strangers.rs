//! Programs in the place of the one that runs plugins.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crossdock::isolation::{Isolation, Program};
use crossdock_tests::built;

fn said(program: &str, arguments: &[&str]) -> String {
    let program = Program {
        path: PathBuf::from(program),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: Vec::new(),
    };
    let isolation =
        Isolation { program: Some(program), silence: Some(Duration::from_millis(300)), ..crate::isolation() };
    let host = crate::host(&built(), isolation).build().unwrap();
    let session = host.session().open().unwrap();
    session.plugin("arrow-ipc").map(|plugin| plugin.to_string()).unwrap_err().one_line()
}

#[test]
fn whatever_they_do_they_are_an_error() {
    for (program, arguments, expected) in [
        ("/no/such/program", &[][..], "cannot start '/no/such/program'"),
        ("/bin/true", &[], "is gone"),
        ("/bin/false", &[], "it exited with status 1"),
        ("/bin/sleep", &["1000"], "no sign of life"),
        // What it is told is what it says.
        ("/bin/cat", &[], "is gone"),
        ("/bin/sh", &["-c", "kill -9 $$"], "signal 9"),
        ("/bin/sh", &["-c", "exec >&0; while :; do echo nonsense; done"], "is gone"),
    ] {
        let said = said(program, arguments);
        assert!(said.contains(expected) && said.contains("refused (create)"), "{program}: {said}");
    }
}

/// The interpreter itself, which needs nothing of the environment.
fn python() -> Option<String> {
    let out = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}

#[test]
fn whatever_they_say_is_an_error_too() {
    let Some(python) = python() else {
        return eprintln!("skipped: whatever_they_say_is_an_error_too: no python3");
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/isolation/stranger.py");
    let seeds: Vec<String> = (0..20).map(|seed: u32| seed.to_string()).collect();
    let named = ["part", "head", "huge", "files", "nothing", "echo", "lanes"];
    // Each is given its time to end by itself: at once, then.
    std::thread::scope(|scope| {
        for what in named.into_iter().chain(seeds.iter().map(String::as_str)) {
            let python = &python;
            scope.spawn(move || {
                let said = said(python, &["-I", "-S", script, what]);
                assert!(said.contains("refused (create)"), "{what}: {said}");
            });
        }
    });
}
