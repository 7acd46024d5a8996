//! `cargo xtask demo`: the main job, on real data, with what was just built.

use crate::cargo::{Workspace, cargo, run as run_command, show};
use anyhow::{Context, Result};
use std::process::Command;

const SAMPLE: &str = "examples/data/flights-january.arrow";

/// Builds, converts the sample there and back, compares.
pub fn run(workspace: &Workspace) -> Result<()> {
    println!("building the command and the plugins (release) ...");
    let mut build = cargo();
    build.current_dir(&workspace.root).args(["build", "--release", "-p", "crossdock", "-p", "xtask-compare"]);
    for plugin in workspace.plugins() {
        build.args(["-p", &plugin.name]);
    }
    run_command(&mut build)?;

    let built = workspace.built(true);
    let folder = workspace.target.join("demo");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let output = folder.join("flights.arrow");
    let mut convert = Command::new(built.join("crossdock"));
    convert.current_dir(&workspace.root).arg("convert").arg(SAMPLE).arg(&output);
    // The plugins are found beside the command, where they were built.
    convert.args(["--via", "arrow-c-device"]).env_remove("CROSSDOCK_PLUGIN_PATH");
    println!("\n$ {}", show(&convert));
    run_command(&mut convert)?;

    println!("\nwhat came back, against what went in:");
    let mut compare = Command::new(built.join("xtask-compare"));
    run_command(compare.current_dir(&workspace.root).arg(SAMPLE).arg(&output))
}
