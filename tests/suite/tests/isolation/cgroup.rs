//! Processes of plugins in control groups of their own.

use std::path::{Path, PathBuf};

use crossdock::isolation::Isolation;
use crossdock::memory::Backend;

use crate::deeds::{have_done, hostile, skips, words};

/// Names a group of this user's for tests, as a policy would.
const VARIABLE: &str = "CROSSDOCK_TEST_CGROUP";
const LIMIT: usize = 64 << 20;
/// A limit that a sanitizer leaves room under: it maps some 20 TiB for itself.
const WIDE_LIMIT: usize = 64 << 40;

fn in_groups_of(parent: &Path, mark: &str) -> Isolation {
    Isolation { cgroup: Some(parent.into()), ..crate::marked(mark) }
}

fn groups(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// A folder stands for the kernel's: what is written to it is what a group would be told.
#[test]
fn a_process_is_put_into_a_group_with_limits_before_it_does_anything() {
    if skips("a_process_is_put_into_a_group_with_limits_before_it_does_anything") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("parent");
    std::fs::create_dir(&parent).unwrap();
    std::fs::write(parent.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
    std::fs::write(parent.join("cgroup.subtree_control"), "\n").unwrap();
    let backend = Backend::builder().limit_bytes(WIDE_LIMIT).build();
    let host = crate::host(&hostile(folder.path()), in_groups_of(&parent, "grouped"));
    let host = host.backend(backend).build().unwrap();
    let session = host.session().open().unwrap();
    assert!(words(have_done(&session, "read-library")).ends_with("read-library: 0"));
    let groups = groups(&parent);
    let [group] = &groups[..] else { panic!("{groups:?}") };
    let told = |file: &str| std::fs::read_to_string(group.join(file)).unwrap();
    let process = Path::new("/proc").join(told("cgroup.procs"));
    assert!(crate::is_marked(&process, "grouped"), "{process:?}");
    assert!(told("memory.max").parse::<usize>().unwrap() > WIDE_LIMIT);
    assert!(told("pids.max").parse::<u32>().is_ok());
}

#[test]
fn where_there_is_no_such_group_nothing_is_started() {
    if skips("where_there_is_no_such_group_nothing_is_started") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host =
        crate::host(&hostile(folder.path()), in_groups_of(folder.path(), "groupless")).build().unwrap();
    let said = host.session().open().unwrap().plugin("hostile").err().unwrap().one_line();
    assert!(said.contains("cgroup.controllers") && said.contains("isolate_cgroup"), "{said}");
    assert_eq!(crate::processes("groupless"), 0);
    assert!(!folder.path().join("trace").exists(), "its constructor ran");
}

#[test]
fn memory_that_is_no_data_is_limited_by_the_group_alone() {
    const TEST: &str = "memory_that_is_no_data_is_limited_by_the_group_alone";
    if skips(TEST) {
        return;
    }
    let Some(parent) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return crate::skip(TEST, &format!("{VARIABLE} names no control group of this user's"));
    };
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    let there = groups(&parent).len();
    let done = |isolation| {
        let backend = Backend::builder().limit_bytes(LIMIT).build();
        let host = crate::host(&plugin, isolation).backend(backend).build().unwrap();
        words(have_done(&host.session().open().unwrap(), "take-memory-as-file"))
    };
    let said = done(crate::isolation());
    assert!(said.ends_with("take-memory-as-file: 0"), "{said}");
    let said = done(in_groups_of(&parent, "limited"));
    assert!(said.contains("the system ended it: it had more than the"), "{said}");
    assert_eq!(groups(&parent).len(), there, "groups are left");
}
