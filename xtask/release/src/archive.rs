//! Writes tar archives whose bytes depend only on the names and the contents of the files.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::toolchain::commit_time;
use crate::work::{Work, run};

/// Writes the folder `parent`/`name` to the archive `to`, which is compressed with gzip.
pub fn write(work: &Work, parent: &Path, name: &str, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--directory").arg(parent).arg("--file").arg(to);
    tar.args(["--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w"]);
    tar.arg(format!("--mtime=@{}", commit_time(work)?));
    // Without -n, gzip stores the time.
    tar.args(["--use-compress-program=gzip -9 -n", name]);
    run(&mut tar)
}
