//! `cargo xtask demo`: the main job, on real data, with what was just built.

use crate::cargo::{Workspace, cargo, run as run_command, show};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const SAMPLE: &str = "examples/data/flights-january.arrow";
/// Its columns that a tensor can hold.
const NUMBERS: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,flight,air_time,\
                       distance,hour,minute,cancelled,speed_mph";

/// What is run: the command and the plugins that the conversions go through; then the comparison. Apart, because Cargo would
/// give the plugins the features that the comparison asks of their dependencies, and build them again for the wheel.
const BUILT: [&[&str]; 2] = [
    &[
        "crossdock-cli",
        "crossdock-arrow-ipc-plugin",
        "crossdock-arrow-c-device-plugin",
        "crossdock-dlpack-plugin",
    ],
    &["xtask-compare"],
];

/// Builds, converts the sample there and back through each carrier, compares.
pub fn run(workspace: &Workspace) -> Result<()> {
    println!("building the command and the plugins that it needs here (release) ...");
    for packages in BUILT {
        let mut build = cargo();
        build.current_dir(&workspace.root).args(["build", "--release"]);
        run_command(build.args(packages.iter().flat_map(|package| ["-p", package])))?;
    }

    let folder = workspace.target.join("demo");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let demo = Demo { workspace, folder };

    println!("\nthe whole table, out through Arrow C Device and back in:");
    let whole = demo.convert("flights.arrow", &["--via", "arrow-c-device"])?;
    demo.compare(Path::new(SAMPLE), &whole)?;

    println!("\nits numbers and booleans, as DLPack tensors with masks for the nulls, and back:");
    let numbers = demo.convert("numbers.arrow", &["--columns", NUMBERS])?;
    let through = ["--columns", NUMBERS, "--via", "dlpack", "--nulls", "mask"];
    demo.compare(&numbers, &demo.convert("numbers-through-dlpack.arrow", &through)?)
}

struct Demo<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
}

impl Demo<'_> {
    /// Converts the sample, and shows how.
    fn convert(&self, name: &str, arguments: &[&str]) -> Result<PathBuf> {
        let output = self.folder.join(name);
        let mut convert = Command::new(self.workspace.built(true).join("crossdock"));
        convert.current_dir(&self.workspace.root).arg("convert").arg(SAMPLE).arg(&output).args(arguments);
        // The plugins are found beside the command, where they were built.
        convert.env_remove("CROSSDOCK_PLUGIN_PATH");
        println!("\n$ {}", show(&convert));
        run_command(&mut convert)?;
        Ok(output)
    }

    fn compare(&self, before: &Path, after: &Path) -> Result<()> {
        println!("\nwhat came back, against what went in:");
        let mut compare = Command::new(self.workspace.built(true).join("xtask-compare"));
        run_command(compare.current_dir(&self.workspace.root).arg(before).arg(after))
    }
}
