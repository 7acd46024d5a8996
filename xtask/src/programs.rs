//! The workspace's test programs, as files that can be run without Cargo.

use crate::cargo::{Package, Workspace, cargo, show};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every target but the benchmarks. Whatever builds or tests the workspace selects the same, for then Cargo settles on the
/// same features each time and builds nothing twice.
pub const TARGETS: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];

/// One test program, and the folder that its tests expect to be in.
#[derive(Clone)]
pub struct Program {
    /// Its target's, as Cargo knows it.
    pub name: String,
    /// Its package's folder, relative to the root.
    pub package: String,
    /// Whether it holds the unit tests of a library or a program.
    pub is_unit: bool,
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// A program that did not end well.
pub struct Failure {
    /// What to type to see it again.
    pub replay: String,
    /// What it wrote, and how it ended.
    pub output: String,
}

impl Program {
    /// Runs it with these variables and arguments; nothing if it passed.
    pub fn run(&self, variables: &[(&str, String)], arguments: &[&str]) -> Option<Failure> {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let (status, output) = match command.output() {
            Ok(output) if output.status.success() => return None,
            Ok(output) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (output.status.to_string(), text(&output.stdout) + &text(&output.stderr))
            }
            Err(error) => (error.to_string(), String::new()),
        };
        let variables: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let words = [&[&*self.path.to_string_lossy()], arguments].concat().join(" ");
        Some(Failure {
            replay: format!("(cd {} && {variables}{words})", self.folder.display()),
            output: format!("{output}\n{} ended with {status}", self.path.display()),
        })
    }
}

/// Builds all of them; those of the packages that are wanted.
pub fn tests(
    workspace: &Workspace,
    release: bool,
    wanted: impl Fn(&Package) -> bool,
) -> Result<Vec<Program>> {
    let mut command = cargo();
    command.current_dir(&workspace.root).arg("test").args(TARGETS).args(release.then_some("--release"));
    let mut all = built_by(workspace, &mut command)?;
    all.retain(|program| workspace.packages.iter().any(|p| p.folder == program.package && wanted(p)));
    Ok(all)
}

/// Those that `cargo test ...` would run, built.
pub fn built_by(workspace: &Workspace, command: &mut Command) -> Result<Vec<Program>> {
    command.args(["--no-run", "--message-format", "json"]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", show(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", show(command), output.status);
    }
    let all = String::from_utf8_lossy(&output.stdout);
    Ok(all.lines().filter_map(|line| program(line, &workspace.root)).collect())
}

/// The test program that a line of Cargo's messages tells of.
fn program(line: &str, root: &Path) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let name = message["target"]["name"].as_str()?.to_owned();
    let is_unit = message["target"]["kind"].as_array()?.iter().all(|kind| kind != "test");
    let package = folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned();
    Some(Program { name, package, is_unit, path: path.into(), folder: folder.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_of_test_programs_among_other_things() {
        let line = r#"{"executable":"/t/a-1","profile":{"test":true},"manifest_path":"/w/c/Cargo.toml","target":{"name":"a","kind":["test"]}}"#;
        let program = |line: &str| program(line, Path::new("/w"));
        let found = program(line).unwrap();
        assert_eq!((&*found.name, found.path, found.folder), ("a", "/t/a-1".into(), "/w/c".into()));
        assert_eq!((&*found.package, found.is_unit), ("c", false));
        assert!(program(&line.replace("[\"test\"]", "[\"lib\"]")).unwrap().is_unit);
        assert!(program(&line.replace("true", "false")).is_none());
        assert!(program("Compiling").is_none());
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_seed_and_what_it_wrote() {
        let program = |path: &str| Program {
            name: path.into(),
            package: String::new(),
            is_unit: false,
            path: path.into(),
            folder: "/".into(),
        };
        let seed = [("SEED", "7".to_owned()), ("LD_LIBRARY_PATH", "/driver".to_owned())];
        assert!(program("true").run(&seed, &[]).is_none());
        let failure = program("ls").run(&seed, &["/none/such"]).unwrap();
        assert_eq!(failure.replay, "(cd / && SEED=7 LD_LIBRARY_PATH=/driver ls /none/such)");
        assert!(failure.output.contains("/none/such"), "{}", failure.output);
    }
}
