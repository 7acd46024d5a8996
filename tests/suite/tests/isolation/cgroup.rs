//! Tests isolated processes in control groups.

use std::path::{Path, PathBuf};

use crossdock::isolation::Isolation;
use crossdock::memory::Backend;

use crate::actions::{error_line, hostile, run_action, skips};

/// The environment variable with the path of a control group that tests may use.
const VARIABLE: &str = "CROSSDOCK_TEST_CGROUP";
const LIMIT: usize = 64 << 20;
/// A limit that is large enough for a sanitizer, which maps some 20 TiB.
const WIDE_LIMIT: usize = 64 << 40;

fn in_group_below(parent: &Path, mark: &str) -> Isolation {
    Isolation { cgroup: Some(parent.into()), ..crate::marked(mark) }
}

fn groups(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Uses an ordinary folder instead of a cgroup file system, so that the test can read what the host
/// wrote to the files of a group.
#[test]
fn process_joins_its_control_group_before_it_loads_the_plugin() {
    if skips("process_joins_its_control_group_before_it_loads_the_plugin") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("parent");
    std::fs::create_dir(&parent).unwrap();
    std::fs::write(parent.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
    std::fs::write(parent.join("cgroup.subtree_control"), "\n").unwrap();
    let backend = Backend::builder().limit_bytes(WIDE_LIMIT).build();
    let host = crate::host(&hostile(folder.path()), in_group_below(&parent, "grouped"));
    let host = host.backend(backend).build().unwrap();
    let session = host.session().open().unwrap();
    assert!(error_line(run_action(&session, "read-library")).ends_with("read-library: 0"));
    let groups = groups(&parent);
    let [group] = &groups[..] else { panic!("{groups:?}") };
    let group_file = |file: &str| std::fs::read_to_string(group.join(file)).unwrap();
    let process = Path::new("/proc").join(group_file("cgroup.procs"));
    assert!(crate::is_marked(&process, "grouped"), "{process:?}");
    assert!(group_file("memory.max").parse::<usize>().unwrap() > WIDE_LIMIT);
    assert!(group_file("pids.max").parse::<u32>().is_ok());
}

#[test]
fn rejects_missing_control_group_without_starting_a_process() {
    if skips("rejects_missing_control_group_without_starting_a_process") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host =
        crate::host(&hostile(folder.path()), in_group_below(folder.path(), "groupless")).build().unwrap();
    let error = host.session().open().unwrap().plugin("hostile").err().unwrap().one_line();
    assert!(error.contains("cgroup.controllers") && error.contains("isolate_cgroup"), "{error}");
    assert_eq!(crate::processes("groupless"), 0);
    assert!(!folder.path().join("trace").exists(), "the plugin's constructor ran");
}

#[test]
fn control_group_also_limits_memory_that_is_not_data() {
    const TEST: &str = "control_group_also_limits_memory_that_is_not_data";
    if skips(TEST) {
        return;
    }
    let Some(parent) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return crate::skip(TEST, &format!("{VARIABLE} does not name a control group of this user"));
    };
    let folder = tempfile::tempdir().unwrap();
    let plugin = hostile(folder.path());
    let n_groups = groups(&parent).len();
    let error_with = |isolation| {
        let backend = Backend::builder().limit_bytes(LIMIT).build();
        let host = crate::host(&plugin, isolation).backend(backend).build().unwrap();
        error_line(run_action(&host.session().open().unwrap(), "take-memory-as-file"))
    };
    let error = error_with(crate::isolation());
    assert!(error.ends_with("take-memory-as-file: 0"), "{error}");
    let error = error_with(in_group_below(&parent, "limited"));
    assert!(error.contains("the system killed the process because it exceeded its memory limit"), "{error}");
    assert_eq!(groups(&parent).len(), n_groups, "groups are left behind");
}
