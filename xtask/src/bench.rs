//! `cargo xtask bench`: builds and runs the benchmarks.

use crate::cargo::{Workspace, cargo, run as run_command};
use crate::{python, test};
use anyhow::{Result, bail};
use std::process::Command;

/// The program that compares the Python package with other libraries.
const PEERS: &str = "benches/peers.py";
const PACKAGE: &str = "crossdock-benches";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Options {
    /// Compare the Python package with all installed libraries (pyarrow, polars, vortex-data; on a
    /// GPU libcudf, cupy, torch), and draw the times in target/peers/peers.html
    #[arg(long)]
    peers: bool,
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
    if options.peers {
        let interpreter = test::python::environment(workspace)?;
        let mut bench = Command::new(interpreter);
        bench
            .current_dir(&workspace.root)
            .env("PYTHONPATH", python::lay_out(workspace, &workspace.built(true))?);
        return run_command(bench.arg(PEERS).args(&options.arguments));
    }
    let mut bench = cargo();
    bench.current_dir(&workspace.root).args(["run", "--release", "--package", PACKAGE, "--"]);
    run_command(bench.args(&options.arguments))
}
