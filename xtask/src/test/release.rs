//! Builds a release, and installs and uses each part of it.

use super::{Outcome, Run, stream};
use crate::cargo::cargo;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let folder = workspace.target.join("dist/tested");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let release = || -> Command {
        let mut command = cargo();
        command.current_dir(&workspace.root).args(["run", "--quiet", "-p", "xtask-release", "--"]);
        command
    };
    stream::check(release().arg("--out").arg(&folder))?;
    stream::cargo_test(release().arg("--check").arg(&folder))
}
