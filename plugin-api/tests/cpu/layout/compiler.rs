//! Runs the C and C++ compilers of this machine.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

pub enum Language {
    C,
    Cpp,
}

impl Language {
    /// The program and its first arguments, which may come from a variable such as
    /// `CC="ccache gcc"`.
    fn program(&self) -> Vec<String> {
        let (variable, default) = match self {
            Self::C => ("CC", "cc"),
            Self::Cpp => ("CXX", "c++"),
        };
        let value = std::env::var(variable).unwrap_or_default();
        let words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() { vec![default.to_owned()] } else { words }
    }

    /// Creates a command that compiles a translation unit from its standard input and treats every
    /// warning as an error.
    fn command(&self) -> Command {
        let program = self.program();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        command.args(match self {
            Self::C => ["-x", "c", "-std=c11"],
            Self::Cpp => ["-x", "c++", "-std=c++17"],
        });
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I", INCLUDE]);
        command
    }

    /// Whether the compiler is installed.
    pub fn exists(&self) -> bool {
        let program = self.program();
        Command::new(&program[0])
            .args(&program[1..])
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    }

    /// Checks a translation unit. Returns the output of the compiler as the error.
    pub fn check(&self, unit: &str) -> Result<(), String> {
        feed(self.command().args(["-fsyntax-only", "-"]), unit)
    }

    /// Compiles a program, runs it, and returns its output.
    pub fn run(&self, unit: &str, program: &Path) -> Result<String, String> {
        feed(self.command().arg("-o").arg(program).arg("-"), unit)?;
        let output = Command::new(program).output().map_err(|e| format!("{}: {e}", program.display()))?;
        check_status(&output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn feed(command: &mut Command, unit: &str) -> Result<(), String> {
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|e| format!("cannot start {command:?}: {e}; set CC to a C compiler"))?;
    child.stdin.take().unwrap().write_all(unit.as_bytes()).unwrap();
    check_status(&child.wait_with_output().unwrap())
}

fn check_status(output: &Output) -> Result<(), String> {
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
