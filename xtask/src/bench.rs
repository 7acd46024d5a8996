//! `cargo xtask bench`: the benchmarks, which are a program of their own.

use crate::cargo::{Workspace, cargo, run as run_command};
use anyhow::{Result, bail};

const PACKAGE: &str = "crossdock-benches";

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Handed to the benchmarks as they are
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Builds command and plugins in release, then runs the benchmarks.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !workspace.has(PACKAGE) {
        bail!(
            "there are no benchmarks to run: the workspace has no package {PACKAGE} (its place is benches/)"
        );
    }
    run_command(cargo().current_dir(&workspace.root).args([
        "build",
        "--release",
        "--workspace",
        "--lib",
        "--bins",
    ]))?;
    let mut bench = cargo();
    bench.current_dir(&workspace.root).args(["run", "--release", "--package", PACKAGE, "--"]);
    run_command(bench.args(&options.arguments))
}
