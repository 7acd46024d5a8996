//! The command with more rights than its caller.

use std::ffi::{CString, OsStr};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::alone::{Alone, json};
use crate::common::{c_plugin, policy_file, set_mode, temporary};

/// Somebody who is not root.
const CALLER: libc::uid_t = 65534;

/// The command as its caller sees it that is root's and set-user-ID: effectively root's, and started by another. `None`, with why
/// `test` is skipped, where this is not root's to do.
fn privileged(alone: &Alone, test: &str) -> Option<Command> {
    is_root_s(test).then(|| as_somebody(alone.command(), libc::SYS_setresuid, 0))
}

/// Whether `test` can do what only root can.
fn is_root_s(test: &str) -> bool {
    // SAFETY: geteuid has no conditions and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skipped(test, "only root can");
    }
    is_root
}

/// Past what the test runner captures.
fn skipped(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// The command as it is once `set` (`setresuid`, `setresgid`) has made its own number the caller's, and its effective one this.
fn as_somebody(mut command: Command, set: libc::c_long, effective: libc::uid_t) -> Command {
    let other = move || {
        // SAFETY: three numbers; the system call alone, which says nothing to other threads, of which there are none here.
        match unsafe { libc::syscall(set, CALLER, effective, effective) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes one system call, and allocates nothing where that works.
    unsafe { command.pre_exec(other) };
    command
}

fn words(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Sets what the environment can say.
fn told<'a>(command: &'a mut Command, alone: &Alone) -> &'a mut Command {
    let at = |name: &str| alone.path().join(name);
    command
        .env("CROSSDOCK_PLUGIN_PATH", at("named"))
        .env("CROSSDOCK_POLICY", at("policy.toml"))
        .env("CROSSDOCK_TRACE", at("trace.json"))
}

#[test]
fn it_ignores_the_environment_and_says_so() {
    let alone = Alone::new();
    let Some(mut command) = privileged(&alone, "it_ignores_the_environment_and_says_so") else { return };
    std::fs::create_dir(alone.path().join("named")).unwrap();
    c_plugin(&alone.path().join("named"), "p.so", &[]);
    std::fs::write(alone.path().join("policy.toml"), "nonsense").unwrap();
    std::fs::write(alone.path().join("in"), "x").unwrap();

    let listed = told(&mut command, &alone).args(["plugins", "--json"]).output().unwrap();
    assert_eq!(json(&listed)["plugins"].as_array().unwrap().len(), 0, "{}", words(&listed));
    assert!(words(&listed).contains("warning: CROSSDOCK_POLICY is ignored"), "{}", words(&listed));
    let warning = json(&listed)["warnings"][0].as_str().unwrap().to_string();
    assert!(warning.starts_with("CROSSDOCK_PLUGIN_PATH is ignored"), "{warning}");
    let mut command = privileged(&alone, "it_ignores_the_environment_and_says_so").unwrap();
    let converted = told(&mut command, &alone).args(["convert", "in", "out"]).output().unwrap();
    let said = words(&converted);
    assert!(said.contains("warning: CROSSDOCK_TRACE is ignored"), "{said}");
    assert!(said.contains("no plugin recognises") && !alone.path().join("trace.json").exists(), "{said}");

    // Whoever has the same rights is listened to.
    let ordinary = told(&mut alone.command(), &alone).args(["convert", "in", "out"]).output().unwrap();
    assert!(words(&ordinary).contains("policy.toml") && alone.path().join("trace.json").exists());
}

#[test]
fn it_runs_no_code_that_its_caller_hands_it() {
    let alone = Alone::new();
    let Some(mut command) = privileged(&alone, "it_runs_no_code_that_its_caller_hands_it") else { return };
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    let output = command.arg("isolated-plugin").stdin(OwnedFd::from(theirs)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains("no plugin is served here: this process has rights"),
        "{}",
        words(&output)
    );
    // So it starts no process for that either.
    c_plugin(alone.path(), "libcrossdock_nothing_plugin.so", &[]);
    let list = |command: &mut Command, more: &[&str]| {
        let more = more.iter().map(OsStr::new);
        command.args(["plugins", "--json"]).args(more).output().unwrap()
    };
    let again = || privileged(&alone, "it_runs_no_code_that_its_caller_hands_it").unwrap();
    assert_eq!(json(&list(&mut again(), &[]))["plugins"][0]["status"], "chosen");
    let isolated = json(&list(&mut again(), &["--isolate"]));
    let message = isolated["plugins"][0]["message"].as_str().unwrap();
    assert!(message.contains("which is not started here: this process has rights"), "{message}");
}

#[test]
fn it_is_not_told_what_to_run_by_its_options() {
    let alone = Alone::new();
    let test = "it_is_not_told_what_to_run_by_its_options";
    let Some(_) = privileged(&alone, test) else { return };
    let policy = policy_file(alone.path(), "").display().to_string();
    let plugin = c_plugin(alone.path(), "p.so", &[]).display().to_string();
    for args in [
        ["plugins", "--policy", &policy],
        ["plugins", "--plugins", &plugin],
        ["verify", "--timeout=10", &plugin],
        ["verify", "--alone=entry.loads", &plugin],
    ] {
        let output = privileged(&alone, test).unwrap().args(args).output().unwrap();
        let refused = words(&output).contains("is refused: this process has rights");
        assert!(refused && output.status.code() == Some(2), "{args:?}: {}", words(&output));
    }
    assert!(alone.run(&["plugins", "--policy", &policy, "--plugins", &plugin]).status.success());
}

#[test]
fn one_with_another_group_than_its_caller_s_is_privileged_too() {
    let alone = Alone::new();
    if !is_root_s("one_with_another_group_than_its_caller_s_is_privileged_too") {
        return;
    }
    let mut command = as_somebody(alone.command(), libc::SYS_setresgid, 0);
    let said = words(&told(&mut command, &alone).args(["plugins", "--json"]).output().unwrap());
    assert!(said.contains("CROSSDOCK_POLICY is ignored"), "{said}");
}

/// The extended attribute for a file that gives whoever runs it one capability (version 2 of the format): to use low ports.
fn capabilities() -> Vec<u8> {
    const VERSION_2_EFFECTIVE: u32 = 0x0200_0001;
    const NET_BIND_SERVICE: u32 = 1 << 10;
    [VERSION_2_EFFECTIVE, NET_BIND_SERVICE, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn one_whose_file_has_capabilities_is_privileged_too() {
    const TEST: &str = "one_whose_file_has_capabilities_is_privileged_too";
    if !is_root_s(TEST) {
        return;
    }
    // Where others may look too, and as a file of its own: what is written to it is true of all its names.
    let alone = Alone::new();
    let folder = temporary();
    set_mode(folder.path(), 0o755);
    let program = folder.path().join("program");
    std::fs::copy(alone.path().join("crossdock"), &program).unwrap();
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    let value = capabilities();
    // SAFETY: two texts that end in NUL, and as many bytes as it is told.
    let set = unsafe {
        libc::setxattr(path.as_ptr(), c"security.capability".as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if set != 0 {
        return skipped(
            TEST,
            &format!("no capabilities for files here: {}", std::io::Error::last_os_error()),
        );
    }
    let run = |effective| {
        let mut command = as_somebody(Command::new(&program), libc::SYS_setresuid, effective);
        told(&mut command, &alone).current_dir(folder.path()).args(["plugins", "--json"]);
        loop {
            match command.output() {
                // A child that another test forked just now may still have the copy open for writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                output => break words(&output.unwrap()),
            }
        }
    };
    // Its caller's in every way but for the file.
    let said = run(CALLER);
    assert!(said.contains("CROSSDOCK_POLICY is ignored"), "{said}");
}
