//! Tests plugins that crash the process that loads them.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::command_dir::{CommandDir, json};
use crate::common::c_plugin;
use crossdock::Policy;
use crossdock::load::{Load, PluginFile};
use serde_json::Value;

fn list(dir: &CommandDir, more: &[&str]) -> Output {
    let plugins = dir.path().join("plugins");
    dir.run(&[&["plugins", "--json", "--plugins", plugins.to_str().unwrap()], more].concat())
}

/// The status and the reason of the only plugin.
fn verdict(output: &Output) -> (String, String) {
    let all = json(output);
    let plugin = &all["plugins"][0];
    let word = |name: &str| plugin[name].as_str().unwrap_or_default().to_string();
    (word("status"), word("reason"))
}

fn refused() -> (String, String) {
    ("refused".into(), "quarantined".into())
}

/// A directory with the command and this plugin.
fn with_plugin(definitions: &[&str]) -> (CommandDir, String) {
    let dir = CommandDir::new();
    let folder = dir.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    let path = c_plugin(&folder, "p.so", definitions);
    (dir, path.display().to_string())
}

fn fifo(dir: &CommandDir) -> String {
    let path = dir.path().join("fifo").display().to_string();
    let name = CString::new(path.clone()).unwrap();
    // SAFETY: a `CString` ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path
}

/// The names of the marks of plugins that are being loaded.
fn mark_names(dir: &CommandDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path().join("state/crossdock/loading")).into_iter().flatten();
    entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok()).collect()
}

fn n_marks(dir: &CommandDir) -> usize {
    mark_names(dir).len()
}

#[test]
fn crashed_plugin_is_refused_until_its_file_changes_or_it_is_retried() {
    for (definition, step) in [("ENDS_IN_LOAD", "its constructors"), ("ENDS_IN_CREATE", "its first instance")]
    {
        let (dir, path) = with_plugin(&[definition]);
        assert!(list(&dir, &[]).status.signal().is_some(), "{definition}");
        let output = list(&dir, &[]);
        assert_eq!(verdict(&output), refused());
        let all = json(&output);
        let message = all["plugins"][0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("ended during {step}")) && message.contains(" s ago"), "{message}");
        // A command that uses the plugin fails. `inspect` succeeds, because it does not run the
        // plugin.
        let (status, line) = dir.fails(&["convert", "in", "out", "--plugins", &path]);
        assert_eq!(status, 1);
        assert!(line.contains("quarantined") && line.contains("--retry"), "{line}");
        assert!(dir.run(&["inspect", &path]).status.success());

        assert!(list(&dir, &["--retry", &path]).status.signal().is_some(), "the plugin is loaded again");
        assert_eq!(verdict(&list(&dir, &[])), refused());
        c_plugin(&dir.path().join("plugins"), "p.so", &[]);
        assert_eq!(verdict(&list(&dir, &[])).0, "chosen", "the file has changed");
    }
}

#[test]
fn crash_is_detected_even_if_a_child_of_the_crashed_process_runs() {
    let (dir, path) = with_plugin(&["FORKS_AND_ENDS_IN_LOAD"]);
    assert!(list(&dir, &[]).status.signal().is_some());
    assert_eq!(verdict(&list(&dir, &[])), refused());
    assert!(list(&dir, &["--retry", &path]).status.signal().is_some(), "the plugin is loaded again");
}

#[test]
fn crashed_plugin_is_refused_after_its_file_is_moved() {
    let (dir, path) = with_plugin(&["ENDS_IN_CREATE"]);
    let policy = crate::common::policy_file(dir.path(), "allow = ['sha256:HASH']");
    let hash = json(&dir.run(&["inspect", "--json", &path]))["sha256"].as_str().unwrap().to_string();
    let text = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, text.replace("HASH", &hash)).unwrap();
    let under = ["--policy", policy.to_str().unwrap()];
    assert!(list(&dir, &under).status.signal().is_some());
    // An update may move the plugin without changing it.
    std::fs::copy(&path, dir.path().join("plugins/q.so")).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(verdict(&list(&dir, &under)), refused());
}

/// Starts a process that lists plugins, and blocks until its gate is opened.
fn start_blocked(dir: &CommandDir) -> BlockedProcess {
    let plugins = dir.path().join("plugins");
    let mut command = dir.command();
    command.args(["plugins", "--json", "--plugins", plugins.to_str().unwrap()]);
    BlockedProcess(command.stdout(Stdio::piped()).spawn().unwrap())
}

/// A process that a test started. Dropping this value kills the process.
struct BlockedProcess(Child);

impl Drop for BlockedProcess {
    fn drop(&mut self) {
        // An error of `kill` is ignored, because the process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl BlockedProcess {
    /// Waits until `condition` holds.
    fn wait_until(&mut self, condition: impl Fn() -> bool) {
        while !condition() {
            if let Some(status) = self.0.try_wait().unwrap() {
                panic!("the process ended early: {status}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn output(&mut self) -> Output {
        let mut stdout = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        Output { status: self.0.wait().unwrap(), stdout, stderr: Vec::new() }
    }
}

#[test]
fn running_process_does_not_count_as_crashed() {
    let dir = CommandDir::new();
    let gate = fifo(&dir);
    std::fs::create_dir(dir.path().join("plugins")).unwrap();
    c_plugin(&dir.path().join("plugins"), "p.so", &[&format!("WAITS_IN_CREATE=\"{gate}\"")]);
    let mut first = start_blocked(&dir);
    first.wait_until(|| n_marks(&dir) == 1);
    // The second process reaches the same step, so the plugin is not refused.
    let mut second = start_blocked(&dir);
    second.wait_until(|| n_marks(&dir) == 2);
    let _open = File::options().read(true).write(true).open(&gate).unwrap();
    for child in [&mut first, &mut second] {
        assert_eq!(verdict(&child.output()).0, "chosen");
    }
    assert_eq!(n_marks(&dir), 0);
}

#[test]
fn killed_process_quarantines_only_the_plugin_being_loaded() {
    let dir = CommandDir::new();
    let (gate, folder) = (fifo(&dir), dir.path().join("plugins"));
    std::fs::create_dir(&folder).unwrap();
    c_plugin(&folder, "a.so", &["NAME=\"a\""]);
    let b = c_plugin(&folder, "b.so", &["NAME=\"b\"", &format!("WAITS_IN_CREATE=\"{gate}\"")]);
    let mark_of_b = format!("-{:x}-", std::fs::metadata(b).unwrap().ino());
    let mut child = start_blocked(&dir);
    // The test waits for a mark that contains the creation step, because a mark without a step does
    // not count. The mark of the loading step is removed before the creation step begins.
    let marks = dir.path().join("state/crossdock/loading");
    let is_creating = |name: &String| {
        name.contains(&mark_of_b)
            && std::fs::read(marks.join(name)).is_ok_and(|step| step == b"its first instance")
    };
    child.wait_until(|| mark_names(&dir).iter().any(is_creating));
    drop(child);
    let all = json(&list(&dir, &[]));
    let reasons: Vec<_> = all["plugins"].as_array().unwrap().iter().map(|p| &p["reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &Value::from("quarantined")]);
}

#[test]
fn failing_plugin_is_not_quarantined() {
    let (dir, _) = with_plugin(&["CREATE_FAILS"]);
    for _ in 0..2 {
        assert_eq!(verdict(&list(&dir, &[])), ("refused".into(), "create".into()));
    }
    assert_eq!(n_marks(&dir), 0);
}

#[test]
fn plugins_are_loaded_without_a_writable_state_folder() {
    let (dir, _) = with_plugin(&[]);
    std::fs::write(dir.path().join("state"), "a file").unwrap();
    assert_eq!(verdict(&list(&dir, &[])).0, "chosen");
}

#[test]
fn plugin_has_no_quarantine_mark_while_it_waits_for_another_load() {
    let dir = CommandDir::new();
    let (marks, fifo) = (dir.path().join("marks"), fifo(&dir));
    let policy = Arc::new(Policy { crashes: Some(marks.clone()), ..Policy::default() });
    // The constructor blocks until the test reads the fifo.
    let slow = c_plugin(dir.path(), "slow.so", &["NAME=\"slow\"", &format!("RAN=\"{fifo}\"")]);
    let other = c_plugin(dir.path(), "other.so", &["NAME=\"other\""]);
    let check = |path| PluginFile::with_policy(path, policy.clone()).check().unwrap();
    let n_marks = || std::fs::read_dir(&marks).map_or(0, |marks| marks.count());
    let (slow, other) = (check(slow), check(other));
    // The second thread starts before the first load. During this load, a constructor holds the
    // loader's lock, and a new thread would wait for this lock.
    let (begin, begins) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || {
        begins.recv().unwrap();
        other.load().map(drop)
    });
    let first = std::thread::spawn(move || slow.load().map(drop));
    while n_marks() == 0 {
        assert!(!first.is_finished(), "the load did not block");
        std::thread::yield_now();
    }
    begin.send(()).unwrap();
    // The delay is long enough for the second load to block. If the second load were already
    // marked, a crash of the first load would be attributed to the second plugin.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(n_marks(), 1);
    let mut text = String::new();
    File::open(&fifo).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "slow\n");
    for thread in [first, second] {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(n_marks(), 0);
}
