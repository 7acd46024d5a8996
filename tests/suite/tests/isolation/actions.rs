//! Tests hostile actions of isolated plugins.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossdock::api::{CancelFlag, Device};
use crossdock::isolation::{Deadlines, Isolation};
use crossdock::memory::{Backend, BackendBuilder};
use crossdock::source::Input;
use crossdock::{Error, Host, ReadOptions, Session};
use crossdock_tests::command;

/// Compiles the hostile plugin. The plugin tries to write its files to `folder`.
pub fn hostile(folder: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = folder.join("libcrossdock_hostile_plugin.so");
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]);
    compile.arg(root.join("../../plugin-api/include")).arg(root.join("tests/isolation/hostile.c"));
    compile.arg(format!("-DHOSTILE_FILE=\"{}\"", folder.join("trace").display())).arg("-o").arg(&to);
    let out = compile.output().expect("a C compiler");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    to
}

/// Whether `test` must be skipped, because this system cannot isolate or compile the plugin.
/// Reports the reason.
pub fn skips(test: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("tests/isolation/hostile.c").exists() {
        crate::skip(test, "the source of its plugin is missing");
        return true;
    }
    crate::skips(test)
}

/// Deadlines that limit only the time between two messages of a process.
fn silent_for(seconds: u64) -> Deadlines {
    Deadlines { silence: Some(Duration::from_secs(seconds)), call: None }
}

fn session(folder: &Path, isolation: Isolation) -> (Host, Session) {
    let host = crate::host(&hostile(folder), isolation).build().unwrap();
    let session = host.session().open().unwrap();
    (host, session)
}

/// Runs an action of the plugin. Returns the lengths of the batches.
pub fn run_action(session: &Session, action: &'static str) -> Result<Vec<usize>, Error> {
    let options = ReadOptions { from: Some("actions".into()), ..ReadOptions::default() };
    let reader = session.read(Input::bytes(action.as_bytes()), &options)?;
    reader.map(|batch| batch.map(|batch| batch.len())).collect()
}

pub fn error_line(result: Result<Vec<usize>, Error>) -> String {
    result.unwrap_err().one_line()
}

#[test]
fn end_of_the_plugin_process_fails_only_the_current_call() {
    if skips("end_of_the_plugin_process_fails_only_the_current_call") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (host, session) = session(folder.path(), crate::marked("ends"));
    for (action, status) in [
        ("crash", "signal 11 (SIGSEGV"),
        ("abort", "signal 6 (SIGABRT"),
        ("exit", "exit status 3"),
        ("next-crash", "signal 11 (SIGSEGV"),
        // The first batch is valid, and the second one crashes the process.
        ("valid", "signal 11 (SIGSEGV"),
    ] {
        let error = error_line(run_action(&session, action));
        assert!(
            error.contains("hostile") && error.contains("the process of") && error.contains(status),
            "{action}: {error}"
        );
        let error = error_line(run_action(&session, "read-library"));
        assert!(error.ends_with("read-library: 0"), "a new process handles the next call: {error}");
    }
    assert!(crate::processes("ends") <= 1, "at most the last process is running");
    drop(session);
    assert!(host.settle().is_empty());
    assert_eq!(crate::processes("ends"), 0, "processes are still running");
}

#[test]
fn process_that_ended_while_idle_is_replaced_without_an_error() {
    if skips("process_that_ended_while_idle_is_replaced_without_an_error") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), crate::marked("idle"));
    for _ in 0..3 {
        let error = error_line(run_action(&session, "read-library"));
        assert!(error.ends_with("read-library: 0"), "{error}");
        crate::end_processes("idle");
    }
    let error = error_line(run_action(&session, "read-library"));
    assert!(error.ends_with("read-library: 0"), "{error}");
}

#[test]
fn system_access_is_rejected() {
    if skips("system_access_is_rejected") {
        return;
    }
    assert_is_confined(Device::CPU, libc::EPERM);
}

#[test]
fn system_access_is_rejected_in_a_process_with_a_device() {
    const TEST: &str = "system_access_is_rejected_in_a_process_with_a_device";
    match Backend::builder().build().cuda() {
        // The filter permits the driver's ioctl requests, so the kernel passes them to the file. A
        // file that does not belong to the driver rejects them with ENOTTY.
        Ok(_) if !skips(TEST) => assert_is_confined(Device::cuda(0), libc::ENOTTY),
        Ok(_) => {}
        Err(missing) => crate::skip(TEST, &missing.to_string()),
    }
}

fn assert_is_confined(device: Device, to_driver: i32) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.existing"), "existing").unwrap();
    let host = crate::host(&hostile(folder.path()), crate::isolation()).build().unwrap();
    let session = host.session().device(device).open().unwrap();
    let assert_fails = |action, errno: i32| {
        let error = error_line(run_action(&session, action));
        assert!(error.ends_with(&format!("{action}: {errno}")), "{error}");
    };
    for action in ["write-file", "read-file", "list-folder", "exec"] {
        assert_fails(action, if action == "exec" { libc::EPERM } else { libc::EACCES });
    }
    for action in [
        "socket",
        "local-socket",
        "fork",
        "kill",
        "trace",
        "remove-file",
        "make-folder",
        "type-into-terminal",
        "limit-host",
        "pin-host",
        "signal-by-file",
        "unblock-errors",
        "lock-file",
        "lock-record",
        "lock-open-file",
        "lease",
        "notify",
        "capabilities",
        "datagrams",
        "pass-pid-fd",
    ] {
        assert_fails(action, libc::EPERM);
    }
    assert_fails("driver-ioctl", to_driver);
    assert_fails("standard-input", 0);
    assert_fails("read-library", 0);
    let mut files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(
        files,
        ["libcrossdock_hostile_plugin.so", "trace.existing"],
        "constructors or actions left files"
    );
}

#[test]
fn system_access_succeeds_without_isolation() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), Isolation::default());
    for action in ["read-file", "local-socket"] {
        let error = error_line(run_action(&session, action));
        assert!(error.ends_with(&format!("{action}: 0")), "{error}");
    }
    assert!(folder.path().join("trace").exists(), "the plugin's constructor ran in this process");
}

#[test]
fn silent_process_is_killed() {
    if skips("silent_process_is_killed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // This time is enough to start a process with a sanitizer on a busy machine.
    let isolation = Isolation { deadlines: silent_for(3), ..crate::isolation() };
    let (_host, session) = session(folder.path(), isolation);
    let error = error_line(run_action(&session, "hang"));
    assert!(error.contains("the process sent no message for"), "{error}");
    assert!(error_line(run_action(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn progress_does_not_extend_the_deadline_of_a_call() {
    if skips("progress_does_not_extend_the_deadline_of_a_call") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let deadlines = Deadlines { silence: Some(Duration::from_secs(60)), call: Some(Duration::from_secs(3)) };
    let (_host, session) = session(folder.path(), Isolation { deadlines, ..crate::isolation() });
    let error = error_line(run_action(&session, "report-forever"));
    assert!(error.contains("a call took longer than 3s"), "{error}");
    assert!(error_line(run_action(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn each_session_has_its_own_process() {
    if skips("each_session_has_its_own_process") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = crate::host(&hostile(folder.path()), crate::marked("sessions")).build().unwrap();
    let sessions = [(); 2].map(|()| host.session().open().unwrap());
    for session in &sessions {
        assert!(error_line(run_action(session, "read-library")).ends_with("read-library: 0"));
        assert!(error_line(run_action(session, "read-library")).ends_with("read-library: 0"));
    }
    assert_eq!(crate::processes("sessions"), 2);
    // A crash of one process does not affect the other.
    assert!(error_line(run_action(&sessions[0], "crash")).contains("the process of"));
    assert!(error_line(run_action(&sessions[1], "read-library")).ends_with("read-library: 0"));
}

#[test]
fn release_callback_that_never_returns_does_not_block_the_host() {
    if skips("release_callback_that_never_returns_does_not_block_the_host") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let isolation = Isolation { deadlines: silent_for(5), ..crate::marked("logging") };
    let (host, session) = session(folder.path(), isolation);
    let options = ReadOptions { from: Some("actions".into()), ..ReadOptions::default() };
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(session.read(Input::bytes("log-in-release".as_bytes()), &options).unwrap());
        drop(session);
        done.send(host.settle().len()).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(0), "the host waits for the release");
    assert_eq!(crate::processes("logging"), 0, "the process is still running");
}

#[test]
fn cancelled_call_ends_even_if_the_plugin_ignores_it() {
    if skips("cancelled_call_ends_even_if_the_plugin_ignores_it") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(
        folder.path(),
        Isolation { deadlines: Deadlines { silence: None, call: None }, ..crate::isolation() },
    );
    for action in ["hang-until-cancelled", "hang"] {
        let cancel = CancelFlag::new();
        let cancelled = session.with_cancel_flag(cancel.clone());
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        let result = run_action(&cancelled, action);
        assert!(matches!(result, Err(Error::Cancelled)), "{action}: {result:?}");
        canceller.join().unwrap();
    }
    assert!(error_line(run_action(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn arrays_from_an_isolated_process_are_validated() {
    if skips("arrays_from_an_isolated_process_are_validated") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), crate::isolation());
    let error = error_line(run_action(&session, "false-offset"));
    assert!(error.contains("text[1]: the offset is 60"), "{error}");
    let error = error_line(run_action(&session, "many-rows"));
    assert!(error.contains("signal 11") || error.contains("bytes"), "{error}");
}

#[test]
fn process_memory_is_limited_by_the_budget_of_the_host() {
    let test = "process_memory_is_limited_by_the_budget_of_the_host";
    if skips(test) || crate::skips_memory_limit(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    for (limit, errno) in [(Some(64 << 20), libc::ENOMEM), (None, 0)] {
        let backend = limit.into_iter().fold(Backend::builder(), BackendBuilder::limit_bytes).build();
        let host = crate::host(&plugin, crate::isolation()).backend(backend).build().unwrap();
        let error = error_line(run_action(&host.session().open().unwrap(), "take-memory"));
        assert!(error.ends_with(&format!("take-memory: {errno}")), "{limit:?}: {error}");
    }
}

#[test]
fn log_messages_are_forwarded_and_printed_text_is_not_a_response() {
    if skips("log_messages_are_forwarded_and_printed_text_is_not_a_response") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    for (action, output) in [("log", "a log message"), ("print", "not a response")] {
        let file = folder.path().join("a.action");
        std::fs::write(&file, action).unwrap();
        let arguments = [
            "convert",
            "--isolate=hostile",
            "--plugins",
            plugin.to_str().unwrap(),
            file.to_str().unwrap(),
            "-",
        ];
        let out = command(&arguments).args(["--to", "arrow-ipc-stream"]).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(error.contains(output) && out.stdout.is_empty(), "{action}: {out:?}");
        assert!(error.contains("an instance was destroyed"), "{action}: {error}");
    }
}

#[test]
fn crash_in_one_thread_fails_calls_of_other_threads_with_an_error() {
    if skips("crash_in_one_thread_fails_calls_of_other_threads_with_an_error") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (host, session) = session(folder.path(), crate::isolation());
    let errors = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (session, errors) = (&session, errors.clone());
            scope.spawn(move || {
                for round in 0..6 {
                    let action = if (thread, round) == (3, 2) { "crash" } else { "read-library" };
                    errors.lock().unwrap().push(error_line(run_action(session, action)));
                }
            });
        }
    });
    for error in errors.lock().unwrap().iter() {
        assert!(error.ends_with("read-library: 0") || error.contains("the process of"), "{error}");
    }
    drop(session);
    assert!(host.settle().is_empty());
}

#[test]
fn isolated_processes_end_when_the_host_is_killed() {
    if skips("isolated_processes_end_when_the_host_is_killed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    let file = folder.path().join("a.action");
    std::fs::write(&file, "hang").unwrap();
    let arguments =
        ["convert", "--isolate", "--plugins", plugin.to_str().unwrap(), file.to_str().unwrap(), "-"];
    let mut host = command(&arguments).args(["--to", "arrow-ipc-stream"]).spawn().unwrap();
    let start = Instant::now();
    let assert_in_time = |what: &str| assert!(start.elapsed() < Duration::from_secs(60), "{what}");
    let processes = loop {
        let is_of_host = |process: &PathBuf| crate::parent(process) == Some(host.id());
        let children: Vec<PathBuf> = crate::all_processes().filter(is_of_host).collect();
        if !children.is_empty() {
            break children;
        }
        assert_in_time("no process was started");
        std::thread::sleep(Duration::from_millis(5));
    };
    host.kill().unwrap();
    host.wait().unwrap();
    for process in processes {
        while crate::parent(&process).is_some() {
            assert_in_time("the process outlives its host");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
