//! What a plugin does that is up to no good.

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

/// The plugin, which is to write what it writes below `folder`.
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

/// Whether this system can isolate, and make the plugin; else says why `test` is skipped.
pub fn skips(test: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("tests/isolation/hostile.c").exists() {
        crate::skip(test, "its plugin's source is not here to be compiled");
        return true;
    }
    crate::skips(test)
}

/// Nothing else ends its calls.
fn silent_for(seconds: u64) -> Deadlines {
    Deadlines { silence: Some(Duration::from_secs(seconds)), call: None }
}

fn session(folder: &Path, isolation: Isolation) -> (Host, Session) {
    let host = crate::host(&hostile(folder), isolation).build().unwrap();
    let session = host.session().open().unwrap();
    (host, session)
}

/// Has the plugin do it; what it says.
pub fn have_done(session: &Session, deed: &'static str) -> Result<Vec<usize>, Error> {
    let options = ReadOptions { from: Some("deeds".into()), ..ReadOptions::default() };
    let reader = session.read(Input::bytes(deed.as_bytes()), &options)?;
    reader.map(|batch| batch.map(|batch| batch.len())).collect()
}

pub fn words(result: Result<Vec<usize>, Error>) -> String {
    result.unwrap_err().one_line()
}

#[test]
fn a_process_that_ends_is_an_error_of_the_call_and_of_nothing_else() {
    if skips("a_process_that_ends_is_an_error_of_the_call_and_of_nothing_else") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (host, session) = session(folder.path(), crate::marked("ends"));
    for (deed, how) in [
        ("crash", "signal 11 (SIGSEGV"),
        ("abort", "signal 6 (SIGABRT"),
        ("exit", "it exited with status 3"),
        ("next-crash", "signal 11 (SIGSEGV"),
        // Its first batch is fine, the second one the end of it.
        ("honest", "signal 11 (SIGSEGV"),
    ] {
        let said = words(have_done(&session, deed));
        assert!(
            said.contains("hostile") && said.contains("the process of") && said.contains(how),
            "{deed}: {said}"
        );
        let said = words(have_done(&session, "read-library"));
        assert!(said.ends_with("read-library: 0"), "a new process does the next call: {said}");
    }
    assert!(crate::processes("ends") <= 1, "no more than the one that was used last");
    drop(session);
    assert!(host.settle().is_empty());
    assert_eq!(crate::processes("ends"), 0, "processes are left");
}

#[test]
fn a_process_that_ended_while_nothing_was_asked_of_it_is_nobody_s_error() {
    if skips("a_process_that_ended_while_nothing_was_asked_of_it_is_nobody_s_error") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), crate::marked("idle"));
    for _ in 0..3 {
        let said = words(have_done(&session, "read-library"));
        assert!(said.ends_with("read-library: 0"), "{said}");
        crate::end_processes("idle");
    }
    let said = words(have_done(&session, "read-library"));
    assert!(said.ends_with("read-library: 0"), "{said}");
}

#[test]
fn what_reaches_outside_is_refused() {
    if skips("what_reaches_outside_is_refused") {
        return;
    }
    reaches_nothing(Device::CPU, libc::EPERM);
}

#[test]
fn what_reaches_outside_is_refused_where_there_is_a_device_too() {
    const TEST: &str = "what_reaches_outside_is_refused_where_there_is_a_device_too";
    match Backend::builder().build().cuda() {
        // A driver is spoken to by calls of a kind, which are let through: to what is none they mean nothing.
        Ok(_) if !skips(TEST) => reaches_nothing(Device::cuda(0), libc::ENOTTY),
        Ok(_) => {}
        Err(missing) => crate::skip(TEST, &missing.to_string()),
    }
}

fn reaches_nothing(device: Device, to_driver: i32) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.kept"), "kept").unwrap();
    let host = crate::host(&hostile(folder.path()), crate::isolation()).build().unwrap();
    let session = host.session().device(device).open().unwrap();
    let refused = |deed, errno: i32| {
        let said = words(have_done(&session, deed));
        assert!(said.ends_with(&format!("{deed}: {errno}")), "{said}");
    };
    for deed in ["write-file", "read-file", "list-folder", "exec"] {
        refused(deed, if deed == "exec" { libc::EPERM } else { libc::EACCES });
    }
    for deed in [
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
        "be-told-of-senders",
    ] {
        refused(deed, libc::EPERM);
    }
    refused("speak-to-driver", to_driver);
    refused("standard-input", 0);
    refused("read-library", 0);
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(
        left,
        ["libcrossdock_hostile_plugin.so", "trace.kept"],
        "constructors and deeds left something"
    );
}

#[test]
fn without_isolation_the_same_plugin_does_reach_outside() {
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), Isolation::default());
    for deed in ["read-file", "local-socket"] {
        let said = words(have_done(&session, deed));
        assert!(said.ends_with(&format!("{deed}: 0")), "{said}");
    }
    assert!(folder.path().join("trace").exists(), "its constructor ran here");
}

#[test]
fn a_process_that_gives_no_sign_of_life_is_ended() {
    if skips("a_process_that_gives_no_sign_of_life_is_ended") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Long enough for the start of a process under a sanitizer on a busy machine.
    let isolation = Isolation { deadlines: silent_for(3), ..crate::isolation() };
    let (_host, session) = session(folder.path(), isolation);
    let said = words(have_done(&session, "hang"));
    assert!(said.contains("no sign of life"), "{said}");
    assert!(words(have_done(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn a_call_has_an_end_whatever_it_says_of_its_progress() {
    if skips("a_call_has_an_end_whatever_it_says_of_its_progress") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let deadlines = Deadlines { silence: Some(Duration::from_secs(60)), call: Some(Duration::from_secs(3)) };
    let (_host, session) = session(folder.path(), Isolation { deadlines, ..crate::isolation() });
    let said = words(have_done(&session, "report-for-ever"));
    assert!(said.contains("one call of it took longer than 3s"), "{said}");
    assert!(words(have_done(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn sessions_have_processes_of_their_own() {
    if skips("sessions_have_processes_of_their_own") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = crate::host(&hostile(folder.path()), crate::marked("sessions")).build().unwrap();
    let sessions = [(); 2].map(|()| host.session().open().unwrap());
    for session in &sessions {
        assert!(words(have_done(session, "read-library")).ends_with("read-library: 0"));
        assert!(words(have_done(session, "read-library")).ends_with("read-library: 0"));
    }
    assert_eq!(crate::processes("sessions"), 2);
    // What one of them does ends no other one's.
    assert!(words(have_done(&sessions[0], "crash")).contains("the process of"));
    assert!(words(have_done(&sessions[1], "read-library")).ends_with("read-library: 0"));
}

#[test]
fn a_release_that_does_not_end_holds_nobody_whatever_it_says_meanwhile() {
    if skips("a_release_that_does_not_end_holds_nobody_whatever_it_says_meanwhile") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let isolation = Isolation { deadlines: silent_for(5), ..crate::marked("chatter") };
    let (host, session) = session(folder.path(), isolation);
    let options = ReadOptions { from: Some("deeds".into()), ..ReadOptions::default() };
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(session.read(Input::bytes("chatter-at-end".as_bytes()), &options).unwrap());
        drop(session);
        done.send(host.settle().len()).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(0), "the host waits for it");
    assert_eq!(crate::processes("chatter"), 0, "its process is left");
}

#[test]
fn a_cancelled_call_ends_whether_the_plugin_heeds_it_or_not() {
    if skips("a_cancelled_call_ends_whether_the_plugin_heeds_it_or_not") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(
        folder.path(),
        Isolation { deadlines: Deadlines { silence: None, call: None }, ..crate::isolation() },
    );
    for deed in ["hang-until-cancelled", "hang"] {
        let cancel = CancelFlag::new();
        let cancelled = session.with_cancel_flag(cancel.clone());
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        let result = have_done(&cancelled, deed);
        assert!(matches!(result, Err(Error::Cancelled)), "{deed}: {result:?}");
        later.join().unwrap();
    }
    assert!(words(have_done(&session, "read-library")).ends_with("read-library: 0"));
}

#[test]
fn what_a_process_says_of_its_arrays_is_looked_at() {
    if skips("what_a_process_says_of_its_arrays_is_looked_at") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (_host, session) = session(folder.path(), crate::isolation());
    let said = words(have_done(&session, "lie"));
    assert!(said.contains("text[1]: the offset is 60"), "{said}");
    let said = words(have_done(&session, "many-rows"));
    assert!(said.contains("signal 11") || said.contains("bytes"), "{said}");
}

#[test]
fn it_has_no_more_memory_than_its_host_lets_plugins_have() {
    if skips("it_has_no_more_memory_than_its_host_lets_plugins_have") {
        return;
    }
    if std::env::var_os("CROSSDOCK_TEST_C_FLAGS").is_some() {
        return eprintln!(
            "skipped: it_has_no_more_memory_than_its_host_lets_plugins_have: a sanitizer takes more for itself"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    for (limit, errno) in [(Some(64 << 20), libc::ENOMEM), (None, 0)] {
        let backend = limit.into_iter().fold(Backend::builder(), BackendBuilder::limit_bytes).build();
        let host = crate::host(&plugin, crate::isolation()).backend(backend).build().unwrap();
        let said = words(have_done(&host.session().open().unwrap(), "take-memory"));
        assert!(said.ends_with(&format!("take-memory: {errno}")), "{limit:?}: {said}");
    }
}

#[test]
fn what_it_logs_is_heard_and_what_it_prints_is_no_answer() {
    if skips("what_it_logs_is_heard_and_what_it_prints_is_no_answer") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    for (deed, heard) in [("log", "heard from afar"), ("print", "not an answer")] {
        let file = folder.path().join("a.deed");
        std::fs::write(&file, deed).unwrap();
        let arguments = [
            "convert",
            "--isolate=hostile",
            "--plugins",
            plugin.to_str().unwrap(),
            file.to_str().unwrap(),
            "-",
        ];
        let out = command(&arguments).args(["--to", "arrow-ipc-stream"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(heard) && out.stdout.is_empty(), "{deed}: {out:?}");
        assert!(said.contains("an instance was destroyed"), "{deed}: {said}");
    }
}

#[test]
fn many_threads_share_a_process_and_one_that_crashes_it_fails_the_others_with_words() {
    if skips("many_threads_share_a_process_and_one_that_crashes_it_fails_the_others_with_words") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (host, session) = session(folder.path(), crate::isolation());
    let others = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (session, others) = (&session, others.clone());
            scope.spawn(move || {
                for round in 0..6 {
                    let deed = if (thread, round) == (3, 2) { "crash" } else { "read-library" };
                    others.lock().unwrap().push(words(have_done(session, deed)));
                }
            });
        }
    });
    for said in others.lock().unwrap().iter() {
        assert!(said.ends_with("read-library: 0") || said.contains("the process of"), "{said}");
    }
    drop(session);
    assert!(host.settle().is_empty());
}

#[test]
fn a_host_that_is_killed_takes_its_plugins_along() {
    if skips("a_host_that_is_killed_takes_its_plugins_along") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    let file = folder.path().join("a.deed");
    std::fs::write(&file, "hang").unwrap();
    let arguments =
        ["convert", "--isolate", "--plugins", plugin.to_str().unwrap(), file.to_str().unwrap(), "-"];
    let mut host = command(&arguments).args(["--to", "arrow-ipc-stream"]).spawn().unwrap();
    let start = Instant::now();
    let soon = |what: &str| assert!(start.elapsed() < Duration::from_secs(60), "{what}");
    let processes = loop {
        let of_host = |process: &PathBuf| crate::parent(process) == Some(host.id());
        let there: Vec<PathBuf> = crate::all_processes().filter(of_host).collect();
        if !there.is_empty() {
            break there;
        }
        soon("no process was started");
        std::thread::sleep(Duration::from_millis(5));
    };
    host.kill().unwrap();
    host.wait().unwrap();
    for process in processes {
        while crate::parent(&process).is_some() {
            soon("it outlives its host");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
