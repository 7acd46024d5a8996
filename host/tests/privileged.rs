//! The command with more rights than its caller.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use common::alone::{Alone, json};
use common::{c_plugin, policy_file};

/// Somebody who is not root.
const CALLER: libc::uid_t = 65534;

/// The command as its caller sees it that is root's and set-user-ID: effectively root's, and started by another. `None`, with why
/// `test` is skipped, where this is not root's to do.
fn privileged(alone: &Alone, test: &str) -> Option<Command> {
    // SAFETY: geteuid has no conditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        // Past what the test runner captures.
        std::io::stderr().write_all(format!("skipped: {test}: only root can\n").as_bytes()).unwrap();
        return None;
    }
    let mut command = alone.command();
    let other = || {
        // SAFETY: three numbers; the system call alone, which says nothing to other threads, of which there are none here.
        match unsafe { libc::syscall(libc::SYS_setresuid, CALLER, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes one system call, and allocates nothing where that works.
    unsafe { command.pre_exec(other) };
    Some(command)
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
