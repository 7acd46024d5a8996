//! Finds the nightly toolchain that rustup has installed. Sanitizers need it.

use anyhow::{Context, Result};
use std::process::Command;

/// A program of the nightly toolchain.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.arg("+nightly");
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command
}

/// The host triple of the nightly toolchain. `None` if it is not installed.
pub fn host() -> Result<Option<String>> {
    let version = program("rustc").arg("-vV").output();
    let Some(version) = version.ok().filter(|o| o.status.success()) else { return Ok(None) };
    let version = String::from_utf8_lossy(&version.stdout);
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV: no line with the host")?;
    Ok(Some(host.to_owned()))
}
