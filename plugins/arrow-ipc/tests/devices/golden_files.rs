//! Reads the golden files of Arrow if the variable `ARROW_TEST_DATA` is set.

use std::path::{Path, PathBuf};

use crate::common::{CODECS, FORMS, Rig, SOURCE_KINDS, peer_reads};
use crossdock_test_support::devices;

fn golden() -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("ARROW_TEST_DATA") else {
        println!("skipped: ARROW_TEST_DATA is not set");
        return Vec::new();
    };
    let list = |folder: &Path| {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let folders = list(Path::new(&folder)).into_iter().filter(|path| path.is_dir());
    let is_golden = |path: &PathBuf| path.extension().is_some_and(|e| e == "stream" || e == "arrow_file");
    let mut files: Vec<_> = folders.flat_map(|folder| list(&folder)).filter(is_golden).collect();
    files.sort();
    assert!(files.len() > 40, "only {} golden files", files.len());
    files
}

#[test]
fn conversions_keep_the_values_that_arrow_rs_reads_from_golden_files() {
    for path in golden() {
        let from = std::fs::read(&path).unwrap();
        let expected = peer_reads(&from);
        let rig = Rig::new();
        for (i, how) in SOURCE_KINDS.into_iter().enumerate() {
            for device in devices().iter().copied() {
                for form in FORMS {
                    let out = rig
                        .convert(&from, how, device, form, CODECS[i])
                        .unwrap_or_else(|e| panic!("{path:?} {how:?}: {e}"));
                    assert_eq!(peer_reads(&out), expected, "{path:?} {how:?} {device} {form}");
                }
            }
        }
        rig.host.assert_nothing_leaked();
    }
}
