//! The loaded bytes are those that were checked, even if the file changes in between.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{c_plugin, lines, policy, temporary};
use crossdock::discovery::Search;
use crossdock::load::{Load, PluginFile, inspect};
use crossdock::{Error, Host, Policy};

/// A plugin that appends its name to `ran` when it is loaded.
fn plugin(directory: &Path, file: &str, name: &str, ran: &Path) -> PathBuf {
    c_plugin(directory, file, &[&format!("NAME=\"{name}\""), &format!("RAN=\"{}\"", ran.display())])
}

/// A policy that allows the file's current content, by its hash.
fn only(directory: &Path, plugin: &Path) -> Arc<Policy> {
    let sha256 = inspect(plugin).unwrap().fingerprint.sha256;
    policy(directory, &format!("allow = ['sha256:{sha256}']")).unwrap()
}

#[test]
fn replaced_file_is_loaded_as_it_was_checked() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    for hashed in [true, false] {
        let good = plugin(directory.path(), "good.so", &format!("good-{hashed}"), &ran);
        let bad = plugin(directory.path(), "bad.so", "bad", &ran);
        let policy = if hashed { only(directory.path(), &good) } else { Arc::default() };
        let checked = PluginFile::with_policy(&good, policy).check().unwrap();
        std::fs::rename(&bad, &good).unwrap();
        let loaded = checked.load().unwrap();
        assert_eq!(loaded.metadata.name, format!("good-{hashed}"));
    }
    assert_eq!(lines(&ran), ["good-true", "good-false"]);
}

#[test]
fn rewritten_file_is_loaded_as_it_was_checked() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let good = plugin(directory.path(), "good.so", "good", &ran);
    let bad = plugin(directory.path(), "bad.so", "bad", &ran);
    let checked = PluginFile::with_policy(&good, only(directory.path(), &good)).check().unwrap();
    let inode = std::fs::metadata(&good).unwrap().ino();
    std::fs::write(&good, std::fs::read(&bad).unwrap()).unwrap();
    assert_eq!(std::fs::metadata(&good).unwrap().ino(), inode, "the same file with other bytes");
    assert_eq!(checked.load().unwrap().metadata.name, "good");
    assert_eq!(lines(&ran), ["good"]);
}

#[test]
fn rewritten_file_that_was_not_copied_is_refused() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let good = plugin(directory.path(), "good.so", "good", &ran);
    let bad = plugin(directory.path(), "bad.so", "bad", &ran);
    let checked = PluginFile::new(&good).check().unwrap();
    std::fs::write(&good, std::fs::read(&bad).unwrap()).unwrap();
    // Sets another modification time, because the two versions of the file could otherwise have the
    // same modification time.
    let file = std::fs::File::options().write(true).open(&good).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let refused = checked.load().expect_err("a refusal");
    assert_eq!(refused.reason.id(), "changed", "{refused}");
    assert_eq!(lines(&ran), [""; 0]);
}

#[test]
fn files_that_cannot_be_plugins_are_not_copied_to_memory() {
    let directory = temporary();
    let good = plugin(directory.path(), "good.so", "good", &directory.path().join("ran"));
    let policy = only(directory.path(), &good);
    let grow =
        |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
    let text = directory.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    for (path, id) in [(&text, "not-elf"), (&good, "copy")] {
        grow(path);
        let refused = PluginFile::with_policy(path, policy.clone()).check().err().expect("a refusal");
        assert_eq!(refused.reason.id(), id, "{refused}");
    }
}

#[test]
fn host_refuses_a_plugin_that_was_replaced_after_the_search() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let reason = |hashed: bool| {
        let good = plugin(directory.path(), "good.so", "good", &ran);
        let bad = plugin(directory.path(), "bad.so", "bad", &ran);
        let policy = if hashed { Policy::clone(&only(directory.path(), &good)) } else { Policy::default() };
        let host = Host::builder().search(Search::nowhere().with_path(&good)).policy(policy).build().unwrap();
        std::fs::rename(&bad, &good).unwrap();
        match host.load("good").unwrap_err() {
            Error::Refused(refused) => refused.reason.id(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(reason(true), "not-allowed");
    assert_eq!(reason(false), "changed");
    assert_eq!(lines(&ran), [""; 0], "code ran");
}

#[test]
fn hosts_share_one_copy_of_equal_plugin_files() {
    let directory = temporary();
    let ran = directory.path().join("ran");
    let a = plugin(directory.path(), "a.so", "a", &ran);
    let copy = directory.path().join("copy.so");
    std::fs::copy(&a, &copy).unwrap();
    let b = plugin(directory.path(), "b.so", "b", &ran);
    let load = |path: &Path| {
        PluginFile::with_policy(path, only(directory.path(), path)).load().unwrap().entry.unwrap()
    };
    assert!(std::ptr::eq(load(&a), load(&a)));
    assert!(std::ptr::eq(load(&a), load(&copy)), "equal bytes at another path");
    assert!(!std::ptr::eq(load(&a), load(&b)));
    assert_eq!(lines(&ran), ["a", "b"], "each was loaded once");
}
