//! The tests of everything that touches raw memory or the boundary, under AddressSanitizer, plugins included.

use super::{Outcome, stream};
use crate::cargo::{Workspace, run as run_command};
use anyhow::{Context, Result};
use std::process::Command;

/// Folders whose crates stay out: they touch no raw memory, or need a program of their own to be loaded into.
const LEFT_OUT: &[&str] = &["xtask", "benches", "capi", "python"];

/// Where AddressSanitizer comes with the toolchain, of the platforms that we support.
const TARGETS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Builds plugins and tests with a nightly toolchain and runs them; skipped where there is none.
pub fn run(workspace: &Workspace) -> Result<Outcome> {
    let version = nightly("rustc").arg("-vV").output();
    let Some(version) = version.ok().filter(|o| o.status.success()) else {
        return Ok(Outcome::Skipped("no nightly toolchain".to_owned()));
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let target =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    if !TARGETS.contains(&target) {
        return Ok(Outcome::Skipped(format!("no AddressSanitizer for {target}")));
    }

    let top = |folder: &str| folder.split('/').next().unwrap_or_default().to_owned();
    let inside = workspace.packages.iter().filter(|p| !LEFT_OUT.contains(&top(&p.folder).as_str()));
    let packages: Vec<&str> = inside.map(|p| p.name.as_str()).collect();
    run_command(&mut sanitized(workspace, target, "build", &packages))?;
    stream::cargo_test(sanitized(workspace, target, "test", &packages).arg("--no-fail-fast"))
}

/// A program of rustup's nightly toolchain, whatever toolchain runs this.
fn nightly(program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("+nightly");
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command
}

fn sanitized(workspace: &Workspace, target: &str, what: &str, packages: &[&str]) -> Command {
    let mut command = nightly("cargo");
    // The plugins find the sanitizer's functions in the program that loads them: hence -rdynamic.
    command.env("RUSTFLAGS", "-Zsanitizer=address -Clink-arg=-rdynamic");
    // Plugins in C that tests build find them there as well.
    command.env("CROSSDOCK_TEST_C_FLAGS", "-fsanitize=address");
    // Tests that plant a wild dereference in a child look for its signal, which the sanitizer would turn into an exit.
    command.env("ASAN_OPTIONS", std::env::var("ASAN_OPTIONS").unwrap_or_else(|_| "handle_segv=0".to_owned()));
    let forgiven = workspace.root.join("xtask/src/test/lsan.supp");
    command.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", forgiven.display()));
    command.current_dir(&workspace.root).args([what, "--target", target, "--target-dir"]);
    command.arg(workspace.target.join("asan")).args(["--lib", "--bins", "--tests"]);
    // What is not ours is compiled quickly rather than well: it runs once.
    command.args(["--config", "profile.dev.package.\"*\".opt-level=1"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command
}
