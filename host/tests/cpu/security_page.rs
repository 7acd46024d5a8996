//! Compares docs/security.md with the code: its policy must be valid, and its table must list every
//! reason.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::common::{policy, temporary};

const PAGE: &str = include_str!("../../../docs/security.md");
const REFUSALS: &str = include_str!("../../src/refusal.rs");

#[test]
fn policy_on_the_page_is_valid_and_has_every_key() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let directory = temporary();
    let policy = policy(directory.path(), text).unwrap();
    assert_eq!(policy.allow.as_ref().map(Vec::len), Some(3));
    assert_eq!(policy.folders.as_ref().unwrap()[1], directory.path().join("plugins"));
    assert!(policy.require_signature && policy.keys.len() == 1);
    assert_eq!(policy.lock.as_ref().unwrap().file, directory.path().join("crossdock.lock"));
    assert_eq!(policy.libraries, ["libzstd.so.1"]);
    assert_eq!(policy.deny_toolchains, ["rustc 1.90"]);
    let isolation = &policy.isolation;
    assert!(isolation.which.includes("dlpack", None) && !isolation.which.includes("arrow-ipc", None));
    assert_eq!(isolation.program.as_ref().unwrap().path, Path::new("/usr/bin/crossdock"));
    let deadlines = (isolation.deadlines.silence, isolation.deadlines.call);
    assert_eq!(deadlines, (Some(Duration::from_secs(60)), Some(Duration::from_secs(3600))));
    assert_eq!(isolation.cgroup.as_deref(), Some(Path::new("/sys/fs/cgroup/system.slice/my.service")));
}

#[test]
fn table_on_the_page_lists_exactly_the_refusal_ids() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<_> = rows.map(|(name, _)| name).collect();
    let (_, names) = REFUSALS.split_once("pub fn id(").unwrap();
    let (names, _) = names.split_once("\n    }\n").unwrap();
    let arms = names.lines().filter_map(|line| line.split_once("=> \"")?.1.split_once('"'));
    // `plugins --explain` uses one more name, for plugins that fail without being refused.
    let expected: BTreeSet<_> = arms.map(|(name, _)| name).chain([crossdock::load::FAILED]).collect();
    assert!(expected.len() > 30, "{expected:?}");
    assert_eq!(listed, expected);
}
