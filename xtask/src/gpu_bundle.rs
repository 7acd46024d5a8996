//! `cargo xtask gpu-bundle`: what a machine with a GPU and without Cargo needs to run the suite.

use crate::cargo::{Workspace, cargo, run as run_command, show};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One line of `tests.txt` is a test program and the folder of its package.
const RUN_SH: &str = include_str!("gpu_bundle.sh");

/// What a machine is likely to be sent at most.
const MOST_BYTES: u64 = 60 << 20;

/// Builds and packs. The bundle has the shape of a target folder, so that the tests find command and plugins in it
/// where they always do.
pub fn run(workspace: &Workspace) -> Result<()> {
    run_command(cargo().current_dir(&workspace.root).args([
        "build",
        "--release",
        "--workspace",
        "--lib",
        "--bins",
    ]))?;
    let tests = test_programs(workspace)?;

    let bundle = workspace.root.join("dist/gpu-bundle");
    if bundle.exists() {
        fs::remove_dir_all(&bundle).with_context(|| format!("cannot empty {}", bundle.display()))?;
    }
    let release = bundle.join("release");
    fs::create_dir_all(release.join("deps")).with_context(|| format!("cannot make {}", release.display()))?;

    let built = workspace.built(true);
    let mut bytes = 0;
    for program in ["crossdock", "crossdock-benches"] {
        bytes += copy(&built.join(program), &release)?;
    }
    // Those of the tests too, which are meant to be bad; not the simulated driver, which the real one must not meet.
    let cdylibs = workspace.packages.iter().filter(|package| package.folder != "tests/sim-cuda/driver");
    for name in cdylibs.flat_map(|package| &package.cdylibs) {
        bytes += copy(&built.join(format!("lib{name}.so")), &release)?;
    }
    let mut lines = String::new();
    for (program, folder) in &tests {
        bytes += copy(program, &release.join("deps"))?;
        lines += &format!("{}\t{folder}\n", program.file_name().unwrap_or_default().to_string_lossy());
    }
    fs::write(bundle.join("tests.txt"), lines)?;
    let script = bundle.join("run.sh");
    fs::write(&script, RUN_SH)?;
    #[cfg(unix)]
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    println!(
        "{}: {} test programs, {} MiB; run {}",
        bundle.display(),
        tests.len(),
        bytes >> 20,
        script.display()
    );
    if bytes > MOST_BYTES {
        bail!("the bundle is larger than {} MiB", MOST_BYTES >> 20);
    }
    Ok(())
}

/// Builds the tests; each program with its package's folder.
fn test_programs(workspace: &Workspace) -> Result<Vec<(PathBuf, String)>> {
    let mut command = cargo();
    command.current_dir(&workspace.root).stderr(Stdio::inherit());
    command.args(["test", "--profile", "bundle", "--workspace"]);
    // Those that need Cargo, a C compiler or the simulated driver to run.
    for name in ["xtask", "xtask-compare", "crossdock-capi", "crossdock-skew", "crossdock-sim-cuda"] {
        if workspace.has(name) {
            command.args(["--exclude", name]);
        }
    }
    command.args(["--lib", "--bins", "--tests", "--no-run", "--message-format", "json"]);
    let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", show(&command), output.status);
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["profile"]["test"] != true {
            continue;
        }
        let (Some(program), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str())
        else {
            continue;
        };
        let folder = Path::new(manifest).parent().and_then(|f| f.strip_prefix(&workspace.root).ok());
        let folder = folder.map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
        programs.push((PathBuf::from(program), folder));
    }
    Ok(programs)
}

/// Copies a file into a folder, without what only debuggers read where there is a `strip`; its bytes.
fn copy(file: &Path, folder: &Path) -> Result<u64> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    let there = folder.join(name);
    fs::copy(file, &there).with_context(|| format!("cannot copy {}", file.display()))?;
    // Without one the bundle is only larger.
    drop(Command::new("strip").arg("--strip-debug").arg(&there).output());
    Ok(fs::metadata(&there)?.len())
}
