//! Programs in the place of the one that runs plugins.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossdock::isolation::{Deadlines, Isolation, Program};
use crossdock_tests::built;

fn said(program: &str, arguments: &[&str]) -> String {
    said_within(Duration::from_millis(300), program, arguments)
}

fn said_within(silence: Duration, program: &str, arguments: &[&str]) -> String {
    let program = Program {
        path: PathBuf::from(program),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: Vec::new(),
    };
    let isolation = Isolation {
        program: Some(program),
        deadlines: Deadlines { silence: Some(silence), call: None },
        ..crate::isolation()
    };
    let host = crate::host(&built(), isolation).build().unwrap();
    let session = host.session().open().unwrap();
    session.plugin("arrow-ipc").map(|plugin| plugin.to_string()).unwrap_err().one_line()
}

#[test]
fn a_program_that_somebody_else_may_change_is_not_started() {
    use std::os::unix::fs::PermissionsExt;
    if crate::skips("a_program_that_somebody_else_may_change_is_not_started") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (program, started) = (folder.path().join("program"), folder.path().join("started"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch '{}'\n", started.display())).unwrap();
    let set_mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (file_mode, folder_mode) in [(0o777, 0o755), (0o775, 0o755), (0o755, 0o777)] {
        set_mode(&program, file_mode);
        set_mode(folder.path(), folder_mode);
        let said = said(program.to_str().unwrap(), &[]);
        assert!(said.contains("is not started") && said.contains("mode"), "{said}");
        assert!(!started.exists());
    }
    set_mode(folder.path(), 0o755);
    assert!(said(program.to_str().unwrap(), &[]).contains("the process of"));
    assert!(started.exists());
}

#[test]
fn whatever_they_do_they_are_an_error() {
    for (program, arguments, expected) in [
        ("/no/such/program", &[][..], "'/no/such/program' is not started"),
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

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/isolation/stranger.py");

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
    let seeds: Vec<String> = (0..20).map(|seed: u32| seed.to_string()).collect();
    let named = ["part", "head", "huge", "files", "nothing", "echo", "lanes"];
    // Each is given its time to end by itself: at once, then.
    std::thread::scope(|scope| {
        for what in named.into_iter().chain(seeds.iter().map(String::as_str)) {
            let python = &python;
            scope.spawn(move || {
                let said = said(python, &["-I", "-S", SCRIPT, what]);
                assert!(said.contains("refused (create)"), "{what}: {said}");
            });
        }
    });
}

/// How many open files this process has of the kind that a stranger sends.
fn hoarded() -> usize {
    crate::open_files("/dev/full")
}

#[test]
fn open_files_that_they_send_are_counted_as_they_come_and_none_stays() {
    let Some(python) = python() else {
        return eprintln!(
            "skipped: open_files_that_they_send_are_counted_as_they_come_and_none_stays: no python3"
        );
    };
    for what in ["files of no head", "files of no end"] {
        let (is_over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    most.fetch_max(hoarded(), Ordering::Relaxed);
                }
            });
            let said = said_within(Duration::from_secs(2), &python, &["-I", "-S", SCRIPT, what]);
            is_over.store(true, Ordering::Relaxed);
            assert!(said.contains("no sign of life") && said.contains("refused (create)"), "{what}: {said}");
        });
        // As many as may be in all messages that are on their way, or two more.
        let most = most.into_inner();
        assert!(most <= 502, "{what}: {most} open files");
        let begun = Instant::now();
        while hoarded() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {} open files stayed", hoarded());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_head_that_does_not_end_is_not_waited_for_where_lanes_are_opened() {
    let Some(python) = python() else {
        return eprintln!(
            "skipped: a_head_that_does_not_end_is_not_waited_for_where_lanes_are_opened: no python3"
        );
    };
    let said = said_within(Duration::from_secs(3), &python, &["-I", "-S", SCRIPT, "no head of a lane"]);
    assert!(said.contains("it exited with status 7"), "{said}");
}
