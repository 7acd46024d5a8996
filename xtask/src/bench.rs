//! `cargo xtask bench`: builds and runs the benchmarks.

use crate::cargo::{Workspace, cargo, run as run_command};
use anyhow::{Result, bail};

const PACKAGE: &str = "crossdock-benches";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Options {
    /// Arguments for the benchmarks
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Builds the command and the plugins in the release profile, then runs the benchmarks.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !workspace.has(PACKAGE) {
        bail!("there are no benchmarks: the workspace has no package {PACKAGE} (expected in benches/)");
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
