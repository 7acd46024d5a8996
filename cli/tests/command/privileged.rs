//! The command in a privileged process, with more rights than its caller.

use std::ffi::{CString, OsStr};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::command_dir::{CommandDir, json};
use crate::common::{c_plugin, policy_file, set_mode, temporary};

/// The id of a user other than root.
const CALLER: libc::uid_t = 65534;

/// The command as a set-user-ID program that root owns and another user starts. Prints why `test`
/// is skipped and returns `None` if this process is not root.
fn privileged(dir: &CommandDir, test: &str) -> Option<Command> {
    is_root(test).then(|| with_ids(dir.command(), libc::SYS_setresuid, 0))
}

/// Whether this process is root. If it is not root, prints that `test` is skipped.
fn is_root(test: &str) -> bool {
    // SAFETY: geteuid has no conditions and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skipped(test, "it needs root");
    }
    is_root
}

/// Prints a line that the test runner does not capture.
fn skipped(test: &str, why: &str) {
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// Makes the new process call `set` (`setresuid` or `setresgid`) before it runs the command. The
/// real id becomes the id of the caller, and the effective id becomes `effective`.
fn with_ids(mut command: Command, set: libc::c_long, effective: libc::uid_t) -> Command {
    let other = move || {
        // SAFETY: the system call gets integers. It affects only this thread, which is the only
        // thread after the fork.
        match unsafe { libc::syscall(set, CALLER, effective, effective) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one async-signal-safe system call, and reads errno if the call
    // fails.
    unsafe { command.pre_exec(other) };
    command
}

fn words(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Sets all environment variables that a privileged process ignores.
fn with_environment<'a>(command: &'a mut Command, dir: &CommandDir) -> &'a mut Command {
    let at = |name: &str| dir.path().join(name);
    command
        .env("CROSSDOCK_PLUGIN_PATH", at("named"))
        .env("CROSSDOCK_POLICY", at("policy.toml"))
        .env("CROSSDOCK_TRACE", at("trace.json"))
}

#[test]
fn privileged_command_ignores_environment_variables_and_warns() {
    let dir = CommandDir::new();
    let Some(mut command) = privileged(&dir, "privileged_command_ignores_environment_variables_and_warns")
    else {
        return;
    };
    std::fs::create_dir(dir.path().join("named")).unwrap();
    c_plugin(&dir.path().join("named"), "p.so", &[]);
    std::fs::write(dir.path().join("policy.toml"), "nonsense").unwrap();
    std::fs::write(dir.path().join("in"), "x").unwrap();

    let listed = with_environment(&mut command, &dir).args(["plugins", "--json"]).output().unwrap();
    assert_eq!(json(&listed)["plugins"].as_array().unwrap().len(), 0, "{}", words(&listed));
    assert!(words(&listed).contains("warning: CROSSDOCK_POLICY is ignored"), "{}", words(&listed));
    let warning = json(&listed)["warnings"][0].as_str().unwrap().to_string();
    assert!(warning.starts_with("CROSSDOCK_PLUGIN_PATH is ignored"), "{warning}");
    let mut command = privileged(&dir, "privileged_command_ignores_environment_variables_and_warns").unwrap();
    let converted = with_environment(&mut command, &dir).args(["convert", "in", "out"]).output().unwrap();
    let stderr = words(&converted);
    assert!(stderr.contains("warning: CROSSDOCK_TRACE is ignored"), "{stderr}");
    assert!(stderr.contains("no plugin recognises") && !dir.path().join("trace.json").exists(), "{stderr}");

    // A process that has only the caller's rights uses the environment variables.
    let ordinary =
        with_environment(&mut dir.command(), &dir).args(["convert", "in", "out"]).output().unwrap();
    assert!(words(&ordinary).contains("policy.toml") && dir.path().join("trace.json").exists());
}

#[test]
fn privileged_command_neither_serves_nor_starts_isolated_plugins() {
    let dir = CommandDir::new();
    let Some(mut command) = privileged(&dir, "privileged_command_neither_serves_nor_starts_isolated_plugins")
    else {
        return;
    };
    let (host_end, plugin_end) = UnixStream::pair().unwrap();
    drop(host_end);
    let output = command.arg("isolated-plugin").stdin(OwnedFd::from(plugin_end)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).contains("no plugin is served here: this process has rights"),
        "{}",
        words(&output)
    );
    // The process of an isolated plugin would also be privileged, and would not serve the plugin.
    // Therefore a privileged command does not start this process.
    c_plugin(dir.path(), "libcrossdock_nothing_plugin.so", &[]);
    let list = |command: &mut Command, more: &[&str]| {
        let more = more.iter().map(OsStr::new);
        command.args(["plugins", "--json"]).args(more).output().unwrap()
    };
    let again = || privileged(&dir, "privileged_command_neither_serves_nor_starts_isolated_plugins").unwrap();
    assert_eq!(json(&list(&mut again(), &[]))["plugins"][0]["status"], "chosen");
    let isolated = json(&list(&mut again(), &["--isolate"]));
    let message = isolated["plugins"][0]["message"].as_str().unwrap();
    assert!(message.contains("which is not started here: this process has rights"), "{message}");
}

#[test]
fn privileged_command_rejects_options_that_select_code_to_run() {
    let dir = CommandDir::new();
    let test = "privileged_command_rejects_options_that_select_code_to_run";
    let Some(_) = privileged(&dir, test) else { return };
    let policy = policy_file(dir.path(), "").display().to_string();
    let plugin = c_plugin(dir.path(), "p.so", &[]).display().to_string();
    for args in [
        ["plugins", "--policy", &policy],
        ["plugins", "--plugins", &plugin],
        ["verify", "--timeout=10", &plugin],
        ["verify", "--alone=entry.loads", &plugin],
    ] {
        let output = privileged(&dir, test).unwrap().args(args).output().unwrap();
        let refused = words(&output).contains("is refused: this process has rights");
        assert!(refused && output.status.code() == Some(2), "{args:?}: {}", words(&output));
    }
    assert!(dir.run(&["plugins", "--policy", &policy, "--plugins", &plugin]).status.success());
}

#[test]
fn process_with_another_effective_group_is_privileged() {
    let dir = CommandDir::new();
    if !is_root("process_with_another_effective_group_is_privileged") {
        return;
    }
    let mut command = with_ids(dir.command(), libc::SYS_setresgid, 0);
    let stderr = words(&with_environment(&mut command, &dir).args(["plugins", "--json"]).output().unwrap());
    assert!(stderr.contains("CROSSDOCK_POLICY is ignored"), "{stderr}");
}

/// The extended attribute, in version 2 of its format, that gives a program the capability to bind
/// low ports.
fn capabilities() -> Vec<u8> {
    const VERSION_2_EFFECTIVE: u32 = 0x0200_0001;
    const NET_BIND_SERVICE: u32 = 1 << 10;
    [VERSION_2_EFFECTIVE, NET_BIND_SERVICE, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn process_with_file_capabilities_is_privileged() {
    const TEST: &str = "process_with_file_capabilities_is_privileged";
    if !is_root(TEST) {
        return;
    }
    // The program is a copy, because the attribute would apply to all hard links of the command.
    // Other users can access its folder.
    let dir = CommandDir::new();
    let folder = temporary();
    set_mode(folder.path(), 0o755);
    let program = folder.path().join("program");
    std::fs::copy(dir.path().join("crossdock"), &program).unwrap();
    let path = CString::new(program.as_os_str().as_bytes()).unwrap();
    let value = capabilities();
    // SAFETY: both strings end with NUL, and `value` is valid for its length.
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
        let mut command = with_ids(Command::new(&program), libc::SYS_setresuid, effective);
        with_environment(&mut command, &dir).current_dir(folder.path()).args(["plugins", "--json"]);
        loop {
            match command.output() {
                // A child that another test has just forked may still have the copy open for
                // writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                output => break words(&output.unwrap()),
            }
        }
    };
    // The process has only the ids of the caller, and only the program file has a capability.
    let stderr = run(CALLER);
    assert!(stderr.contains("CROSSDOCK_POLICY is ignored"), "{stderr}");
}
