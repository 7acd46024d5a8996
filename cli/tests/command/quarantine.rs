//! Plugins that end the process that loads them.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::alone::{Alone, json};
use crate::common::c_plugin;
use crossdock::Policy;
use crossdock::load::{Load, PluginFile};
use serde_json::Value;

fn list(alone: &Alone, more: &[&str]) -> Output {
    let plugins = alone.path().join("plugins");
    alone.run(&[&["plugins", "--json", "--plugins", plugins.to_str().unwrap()], more].concat())
}

/// The one plugin's status and reason.
fn verdict(output: &Output) -> (String, String) {
    let all = json(output);
    let plugin = &all["plugins"][0];
    let word = |name: &str| plugin[name].as_str().unwrap_or_default().to_string();
    (word("status"), word("reason"))
}

fn refused() -> (String, String) {
    ("refused".into(), "quarantined".into())
}

/// An `Alone` with this plugin.
fn with_plugin(definitions: &[&str]) -> (Alone, String) {
    let alone = Alone::new();
    let folder = alone.path().join("plugins");
    std::fs::create_dir(&folder).unwrap();
    let path = c_plugin(&folder, "p.so", definitions);
    (alone, path.display().to_string())
}

fn fifo(alone: &Alone) -> String {
    let path = alone.path().join("fifo").display().to_string();
    let name = CString::new(path.clone()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path
}

fn marked(alone: &Alone) -> Vec<String> {
    let entries = std::fs::read_dir(alone.path().join("state/crossdock/loading")).into_iter().flatten();
    entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok()).collect()
}

fn marks(alone: &Alone) -> usize {
    marked(alone).len()
}

#[test]
fn a_plugin_that_ended_a_process_is_refused_until_it_changes_or_is_let_be_tried_again() {
    for (definition, step) in [("ENDS_IN_LOAD", "its constructors"), ("ENDS_IN_CREATE", "its first instance")]
    {
        let (alone, path) = with_plugin(&[definition]);
        assert!(list(&alone, &[]).status.signal().is_some(), "{definition}");
        let output = list(&alone, &[]);
        assert_eq!(verdict(&output), refused());
        let all = json(&output);
        let message = all["plugins"][0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("ended in '{step}'")) && message.contains(" s ago"), "{message}");
        // By its path it is refused in words, and looking at it runs nothing.
        let (status, line) = alone.fails(&["convert", "in", "out", "--plugins", &path]);
        assert_eq!(status, 1);
        assert!(line.contains("quarantined") && line.contains("--retry"), "{line}");
        assert!(alone.run(&["inspect", &path]).status.success());

        assert!(list(&alone, &["--retry", &path]).status.signal().is_some(), "it is tried again");
        assert_eq!(verdict(&list(&alone, &[])), refused());
        c_plugin(&alone.path().join("plugins"), "p.so", &[]);
        assert_eq!(verdict(&list(&alone, &[])).0, "chosen", "it is another file now");
    }
}

#[test]
fn a_crash_is_seen_though_a_child_of_the_process_lives_on() {
    let (alone, path) = with_plugin(&["FORKS_AND_ENDS_IN_LOAD"]);
    assert!(list(&alone, &[]).status.signal().is_some());
    assert_eq!(verdict(&list(&alone, &[])), refused());
    assert!(list(&alone, &["--retry", &path]).status.signal().is_some(), "it is tried again");
}

#[test]
fn a_hash_knows_the_plugin_again_wherever_it_is() {
    let (alone, path) = with_plugin(&["ENDS_IN_CREATE"]);
    let policy = crate::common::policy_file(alone.path(), "allow = ['sha256:HASH']");
    let hash = json(&alone.run(&["inspect", "--json", &path]))["sha256"].as_str().unwrap().to_string();
    let text = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, text.replace("HASH", &hash)).unwrap();
    let under = ["--policy", policy.to_str().unwrap()];
    assert!(list(&alone, &under).status.signal().is_some());
    // As it would be after an update that changes nothing.
    std::fs::copy(&path, alone.path().join("plugins/q.so")).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(verdict(&list(&alone, &under)), refused());
}

/// A process that lists them, and goes on when its gate is open.
fn waits(alone: &Alone) -> Waiting {
    let plugins = alone.path().join("plugins");
    let mut command = alone.command();
    command.args(["plugins", "--json", "--plugins", plugins.to_str().unwrap()]);
    Waiting(command.stdout(Stdio::piped()).spawn().unwrap())
}

struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // It is gone, or nobody opens its gate any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Waiting {
    /// Waits until it has come so far.
    fn until(&mut self, so_far: impl Fn() -> bool) {
        while !so_far() {
            if let Some(status) = self.0.try_wait().unwrap() {
                panic!("it ended before: {status}");
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
fn a_process_that_loads_it_just_now_does_not_count() {
    let alone = Alone::new();
    let gate = fifo(&alone);
    std::fs::create_dir(alone.path().join("plugins")).unwrap();
    c_plugin(&alone.path().join("plugins"), "p.so", &[&format!("WAITS_IN_CREATE=\"{gate}\"")]);
    let mut first = waits(&alone);
    first.until(|| marks(&alone) == 1);
    // The other one comes as far: it is not refused.
    let mut second = waits(&alone);
    second.until(|| marks(&alone) == 2);
    let _open = File::options().read(true).write(true).open(&gate).unwrap();
    for child in [&mut first, &mut second] {
        assert_eq!(verdict(&child.output()).0, "chosen");
    }
    assert_eq!(marks(&alone), 0);
}

#[test]
fn of_a_process_that_is_killed_only_what_it_was_just_loading_counts() {
    let alone = Alone::new();
    let (gate, folder) = (fifo(&alone), alone.path().join("plugins"));
    std::fs::create_dir(&folder).unwrap();
    c_plugin(&folder, "a.so", &["NAME=\"a\""]);
    let b = c_plugin(&folder, "b.so", &["NAME=\"b\"", &format!("WAITS_IN_CREATE=\"{gate}\"")]);
    let of_b = format!("-{:x}-", std::fs::metadata(b).unwrap().ino());
    let mut child = waits(&alone);
    // A mark counts when it says what is being done, and there is none between loading and creating.
    let marks = alone.path().join("state/crossdock/loading");
    let is_creating = |name: &String| {
        name.contains(&of_b)
            && std::fs::read(marks.join(name)).is_ok_and(|step| step == b"its first instance")
    };
    child.until(|| marked(&alone).iter().any(is_creating));
    drop(child);
    let all = json(&list(&alone, &[]));
    let reasons: Vec<_> = all["plugins"].as_array().unwrap().iter().map(|p| &p["reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &Value::from("quarantined")]);
}

#[test]
fn a_plugin_that_only_fails_is_no_crash() {
    let (alone, _) = with_plugin(&["CREATE_FAILS"]);
    for _ in 0..2 {
        assert_eq!(verdict(&list(&alone, &[])), ("refused".into(), "create".into()));
    }
    assert_eq!(marks(&alone), 0);
}

#[test]
fn without_a_folder_to_write_in_plugins_are_loaded_all_the_same() {
    let (alone, _) = with_plugin(&[]);
    std::fs::write(alone.path().join("state"), "a file").unwrap();
    assert_eq!(verdict(&list(&alone, &[])).0, "chosen");
}

#[test]
fn a_plugin_that_waits_while_another_is_loaded_is_not_marked_meanwhile() {
    let alone = Alone::new();
    let (marks, fifo) = (alone.path().join("marks"), fifo(&alone));
    let policy = Arc::new(Policy { crashes: Some(marks.clone()), ..Policy::default() });
    // Its constructor waits until somebody reads.
    let slow = c_plugin(alone.path(), "slow.so", &["NAME=\"slow\"", &format!("RAN=\"{fifo}\"")]);
    let other = c_plugin(alone.path(), "other.so", &["NAME=\"other\""]);
    let check = |path| PluginFile::under(path, policy.clone()).check().unwrap();
    let n_marks = || std::fs::read_dir(&marks).map_or(0, |marks| marks.count());
    let (slow, other) = (check(slow), check(other));
    // It is there before: the loader, which constructors run in, is what new threads wait for as well.
    let (begin, begins) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || {
        begins.recv().unwrap();
        other.load().map(drop)
    });
    let first = std::thread::spawn(move || slow.load().map(drop));
    while n_marks() == 0 {
        assert!(!first.is_finished(), "it was not waited for");
        std::thread::yield_now();
    }
    begin.send(()).unwrap();
    // Long enough for it to come to where it waits; were it marked there, a crash of the first would be its own.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(n_marks(), 1);
    let mut said = String::new();
    File::open(&fifo).unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "slow\n");
    for thread in [first, second] {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(n_marks(), 0);
}
