//! The workspace's test programs, as files that can be run without Cargo.

use crate::cargo::{Package, Workspace, cargo, show};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Every target but the benchmarks. Whatever builds or tests the workspace selects the same, for then Cargo settles on the
/// same features each time and builds nothing twice.
pub const TARGETS: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];

/// One test program, and the folder that its tests expect to be in.
pub struct Program {
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// Builds all of them; those of the packages that are wanted.
pub fn tests(
    workspace: &Workspace,
    release: bool,
    wanted: impl Fn(&Package) -> bool,
) -> Result<Vec<Program>> {
    let mut command = cargo();
    command.current_dir(&workspace.root).stderr(Stdio::inherit());
    command.args(["test", "--no-run", "--message-format", "json"]).args(TARGETS);
    command.args(release.then_some("--release"));
    let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", show(&command), output.status);
    }
    let folders: Vec<PathBuf> =
        workspace.packages.iter().filter(|p| wanted(p)).map(|p| workspace.root.join(&p.folder)).collect();
    let all = String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect::<Vec<_>>();
    Ok(all.into_iter().filter(|program| folders.contains(&program.folder)).collect())
}

/// The test program that a line of Cargo's messages tells of.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(Program { path: path.into(), folder: folder.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_of_test_programs_among_other_things() {
        let line = r#"{"executable":"/t/a-1","profile":{"test":true},"manifest_path":"/c/Cargo.toml"}"#;
        let found = program(line).unwrap();
        assert_eq!((found.path, found.folder), ("/t/a-1".into(), "/c".into()));
        assert!(program(&line.replace("true", "false")).is_none());
        assert!(program("Compiling").is_none());
    }
}
