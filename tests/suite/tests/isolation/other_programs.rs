//! Tests programs that the host starts instead of the program that runs isolated plugins.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossdock::WriteOptions;
use crossdock::api::Options;
use crossdock::isolation::{Deadlines, Isolation, Program};
use crossdock::source::Input;
use crossdock_test_support::FilesInFlight;
use crossdock_tests::{built, sample};

use crate::equivalence::{assert_same, read, sessions};
use crate::writing::written;

/// Starts a program instead of the plugin process, and returns the error.
fn start_error(program: &str, arguments: &[&str]) -> String {
    start_error_within(Duration::from_millis(300), program, arguments)
}

fn start_error_within(silence: Duration, program: &str, arguments: &[&str]) -> String {
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
fn rejects_programs_that_other_users_can_change() {
    use std::os::unix::fs::PermissionsExt;
    if crate::skips("rejects_programs_that_other_users_can_change") {
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
        let error = start_error(program.to_str().unwrap(), &[]);
        assert!(error.contains("is not started") && error.contains("mode"), "{error}");
        assert!(!started.exists());
    }
    set_mode(folder.path(), 0o755);
    assert!(start_error(program.to_str().unwrap(), &[]).contains("the process of"));
    assert!(started.exists());
}

#[test]
fn programs_that_are_not_plugin_processes_are_errors() {
    for (program, arguments, expected) in [
        ("/no/such/program", &[][..], "'/no/such/program' is not started"),
        ("/bin/true", &[], "has ended"),
        ("/bin/false", &[], "exit status 1"),
        ("/bin/sleep", &["1000"], "the process sent no message for"),
        // The program echoes the requests.
        ("/bin/cat", &[], "has ended"),
        ("/bin/sh", &["-c", "kill -9 $$"], "signal 9"),
        ("/bin/sh", &["-c", "exec >&0; while :; do echo nonsense; done"], "has ended"),
    ] {
        let error = start_error(program, arguments);
        assert!(error.contains(expected) && error.contains("refused (create)"), "{program}: {error}");
    }
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/isolation/other_program.py");

/// The path of the Python interpreter. The host starts it without an environment, so there is no
/// PATH.
fn python() -> Option<String> {
    let out = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}

#[test]
fn malformed_messages_are_errors() {
    let Some(python) = python() else {
        return eprintln!("skipped: malformed_messages_are_errors: no python3");
    };
    let seeds: Vec<String> = (0..20).map(|seed: u32| seed.to_string()).collect();
    let named = ["part", "head", "huge", "files", "nothing", "echo", "channels"];
    // Each program runs until its deadline, so they run concurrently.
    std::thread::scope(|scope| {
        for what in named.into_iter().chain(seeds.iter().map(String::as_str)) {
            let python = &python;
            scope.spawn(move || {
                let error = start_error(python, &["-I", "-S", SCRIPT, what]);
                assert!(error.contains("refused (create)"), "{what}: {error}");
            });
        }
    });
}

/// The number of open files that refer to the file which the program sends.
fn received_files() -> usize {
    crate::open_files("/dev/full")
}

#[test]
fn received_files_are_limited_and_closed() {
    let Some(python) = python() else {
        return eprintln!("skipped: received_files_are_limited_and_closed: no python3");
    };
    for what in ["files without a head", "files without an end"] {
        let (is_done, max_open) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    max_open.fetch_max(received_files(), Ordering::Relaxed);
                }
            });
            let error = start_error_within(Duration::from_secs(2), &python, &["-I", "-S", SCRIPT, what]);
            is_done.store(true, Ordering::Relaxed);
            assert!(
                error.contains("the process sent no message for") && error.contains("refused (create)"),
                "{what}: {error}"
            );
        });
        // 502 is the limit for the files of all pending messages, plus two files.
        let max_open = max_open.into_inner();
        assert!(max_open <= 502, "{what}: {max_open} open files");
        let start = Instant::now();
        while received_files() > 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{what}: {} files are still open",
                received_files()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn process_waits_while_too_many_files_are_in_flight() {
    if crate::skips("process_waits_while_too_many_files_are_in_flight") {
        return;
    }
    let Isolation { program, .. } = crate::isolation();
    let Program { path, arguments, environment } = program.unwrap();
    // All files of the user count towards the limit of each process that sends a file.
    let shell = ["-c".into(), "ulimit -n 256 && exec \"$0\" \"$@\"".into(), path.into_os_string()];
    let arguments = shell.into_iter().chain(arguments).collect();
    let program = Program { path: "/bin/sh".into(), arguments, environment };
    let isolation = Isolation { program: Some(program), ..crate::isolation() };
    let host = crate::host(&built(), isolation).build().unwrap();
    let session = host.session().open().unwrap();
    let (_host, direct, _) = sessions();
    // A process decompresses buffers into a file, which it sends to the host.
    let options = WriteOptions {
        to: Some("arrow-ipc-stream".into()),
        options: Options::new().with("compression", "lz4"),
    };
    let batches = read(&direct, Input::open(sample(), direct.cancel_flag()).unwrap());
    let bytes = written(&direct, &options, &batches, 1);
    let in_flight = FilesInFlight::new(2).unwrap();
    let reader = std::thread::spawn(move || read(&session, Input::bytes(bytes)));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!reader.is_finished(), "no file was sent");
    drop(in_flight);
    assert_same(&reader.join().unwrap(), &batches, &direct);
}

#[test]
fn incomplete_message_head_on_the_control_channel_times_out() {
    let Some(python) = python() else {
        return eprintln!("skipped: incomplete_message_head_on_the_control_channel_times_out: no python3");
    };
    let error =
        start_error_within(Duration::from_secs(3), &python, &["-I", "-S", SCRIPT, "channel without a head"]);
    assert!(error.contains("exit status 7"), "{error}");
}
