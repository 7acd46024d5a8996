//! `cargo xtask demo`: builds the command and plugins, and converts real data with them.

use crate::cargo::{Workspace, cargo, run as run_command, show};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const SAMPLE: &str = "examples/data/flights-january.arrow";
/// The sample's columns that can be tensors.
const NUMBERS: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,flight,air_time,\
                       distance,hour,minute,cancelled,speed_mph";

/// The packages to build: first the command and the plugins of the conversions, then the
/// comparison. The builds are separate, because a single build would enable features of the
/// comparison in the dependencies of the plugins. Cargo would then have to build the plugins again
/// for the wheel.
const BUILT: [&[&str]; 2] = [
    &[
        "crossdock-cli",
        "crossdock-arrow-ipc-plugin",
        "crossdock-arrow-c-device-plugin",
        "crossdock-dlpack-plugin",
    ],
    &["xtask-compare"],
];

/// Builds the command and the plugins, converts the sample through each plugin and back, and
/// compares the result with the sample.
pub fn run(workspace: &Workspace) -> Result<()> {
    println!("building the command and its plugins (release) ...");
    for packages in BUILT {
        let mut build = cargo();
        build.current_dir(&workspace.root).args(["build", "--release"]);
        run_command(build.args(packages.iter().flat_map(|package| ["-p", package])))?;
    }

    let folder = workspace.target.join("demo");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let demo = Demo { workspace, folder };

    println!("\nthe whole table, through the Arrow C device interface and back:");
    let whole = demo.convert("flights.arrow", &["--via", "arrow-c-device"])?;
    demo.compare(Path::new(SAMPLE), &whole)?;

    println!("\nits numbers and booleans, through DLPack tensors with masks for nulls and back:");
    let numbers = demo.convert("numbers.arrow", &["--columns", NUMBERS])?;
    let through = ["--columns", NUMBERS, "--via", "dlpack", "--nulls", "mask"];
    demo.compare(&numbers, &demo.convert("numbers-through-dlpack.arrow", &through)?)
}

struct Demo<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
}

impl Demo<'_> {
    /// Converts the sample, and prints the command.
    fn convert(&self, name: &str, arguments: &[&str]) -> Result<PathBuf> {
        let output = self.folder.join(name);
        let mut convert = Command::new(self.workspace.built(true).join("crossdock"));
        convert.current_dir(&self.workspace.root).arg("convert").arg(SAMPLE).arg(&output).args(arguments);
        // The command finds the plugins next to its executable.
        convert.env_remove("CROSSDOCK_PLUGIN_PATH");
        println!("\n$ {}", show(&convert));
        run_command(&mut convert)?;
        Ok(output)
    }

    fn compare(&self, before: &Path, after: &Path) -> Result<()> {
        println!("\nthe result compared with the sample:");
        let mut compare = Command::new(self.workspace.built(true).join("xtask-compare"));
        run_command(compare.current_dir(&self.workspace.root).arg(before).arg(after))
    }
}
