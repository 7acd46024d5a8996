//! Builds the workspace's test programs, which can run without Cargo.

use crate::cargo::{Package, Workspace, cargo, show};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Cargo arguments for all targets except benchmarks. All builds of the workspace use them, so
/// that Cargo chooses the same features each time and does not build any package twice.
pub const TARGETS: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];

/// A test program, and the working folder of its tests.
#[derive(Clone)]
pub struct Program {
    /// The target's name.
    pub name: String,
    /// The folder of the package, relative to the root.
    pub package: String,
    /// Whether the program has unit tests of a library or a binary. Otherwise it has integration
    /// tests.
    pub is_unit: bool,
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// A failed run of a program.
pub struct Failure {
    /// The command that repeats the run.
    pub replay: String,
    /// The output and the exit status.
    pub output: String,
}

impl Program {
    /// Runs the program with these environment variables and arguments. `None` if it succeeds.
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

/// Builds all test programs, and returns the programs of the selected packages.
pub fn tests(
    workspace: &Workspace,
    release: bool,
    wanted: impl Fn(&Package) -> bool,
) -> Result<Vec<Program>> {
    let mut command = cargo();
    command.current_dir(&workspace.root).arg("test").args(TARGETS).args(release.then_some("--release"));
    let mut all = built_by(workspace, &mut command)?;
    // Cargo creates this folder, CARGO_TARGET_TMPDIR, only when it compiles an integration test.
    std::fs::create_dir_all(workspace.target.join("tmp"))?;
    all.retain(|program| workspace.packages.iter().any(|p| p.folder == program.package && wanted(p)));
    Ok(all)
}

/// Builds and returns the programs that `cargo test ...` would run.
pub fn built_by(workspace: &Workspace, command: &mut Command) -> Result<Vec<Program>> {
    command.args(["--no-run", "--message-format", "json"]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", show(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", show(command), output.status);
    }
    let all = String::from_utf8_lossy(&output.stdout);
    Ok(all.lines().filter_map(|line| program(line, &workspace.root)).collect())
}

/// The test program in a line of Cargo's JSON messages, if there is one.
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
    fn parses_test_programs_in_cargo_messages() {
        let line = r#"{"executable":"/t/a-1","profile":{"test":true},"manifest_path":"/w/c/Cargo.toml","target":{"name":"a","kind":["test"]}}"#;
        let program = |line: &str| program(line, Path::new("/w"));
        let parsed = program(line).unwrap();
        assert_eq!((&*parsed.name, parsed.path, parsed.folder), ("a", "/t/a-1".into(), "/w/c".into()));
        assert_eq!((&*parsed.package, parsed.is_unit), ("c", false));
        assert!(program(&line.replace("[\"test\"]", "[\"lib\"]")).unwrap().is_unit);
        assert!(program(&line.replace("true", "false")).is_none());
        assert!(program("Compiling").is_none());
    }

    #[test]
    fn failure_contains_the_command_and_the_output() {
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
