//! `cargo xtask gpu-bundle`: packs the test suite for a machine with a GPU and without Cargo.

use crate::cargo::{Package, Workspace, cargo, run as run_command};
use crate::programs::{self, Program};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that runs the tests. Each line of `tests.txt` is a test program and the folder of its
/// package.
const RUN_SH: &str = include_str!("gpu_bundle.sh");

/// The maximum size of the bundle, because many GPU machines limit the size of uploads.
const MAX_BYTES: u64 = 60_000_000;

/// Builds and packs the bundle. Its folder has the structure of a target folder, so that the tests
/// find the command and the plugins in the usual places.
pub fn run(workspace: &Workspace) -> Result<()> {
    run_command(cargo().current_dir(&workspace.root).args([
        "build",
        "--release",
        "--workspace",
        "--lib",
        "--bins",
    ]))?;
    let tests = test_programs(workspace)?;

    let unpacked = fresh(workspace.target.join("gpu-bundle"))?;
    let release = unpacked.join("release");
    fs::create_dir_all(release.join("deps"))
        .with_context(|| format!("cannot create {}", release.display()))?;
    let built = workspace.built(true);
    for program in ["crossdock", "crossdock-benches"] {
        copy(&built.join(program), &release)?;
    }
    // Includes the plugins of tests, but not the simulated driver, which must not be loaded
    // together with the real one.
    let cdylibs = workspace.packages.iter().filter(|package| package.folder != "tests/sim-cuda/driver");
    for name in cdylibs.flat_map(|package| &package.cdylibs) {
        copy(&built.join(format!("lib{name}.so")), &release)?;
    }
    // The tests search this folder on a machine without Cargo.
    let example = release.join("example-plugin");
    fs::create_dir(&example).with_context(|| format!("cannot create {}", example.display()))?;
    copy(&example_plugin(workspace)?, &example)?;
    let mut lines = String::new();
    for Program { path, package, .. } in &tests {
        copy(path, &release.join("deps"))?;
        lines += &format!("{}\t{package}\n", path.file_name().unwrap_or_default().to_string_lossy());
    }
    fs::write(unpacked.join("tests.txt"), lines)?;
    crate::python::carry(workspace, &unpacked)?;

    let bundle = fresh(workspace.root.join("dist/gpu-bundle"))?;
    let packed = bundle.join("programs.tar.xz");
    // The programs contain much of the same code. A compression window that is larger than a
    // program reduces the bundle to a fifth of its size.
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "-T0 --lzma2=preset=5,dict=96MiB").arg("-C").arg(&unpacked).arg("-cJf").arg(&packed);
    run_command(tar.args(["--sort=name", "."]))?;
    let script = bundle.join("run.sh");
    fs::write(&script, RUN_SH)?;
    #[cfg(unix)]
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let bytes = fs::metadata(&packed)?.len();
    println!(
        "{}: {} test programs, {} MiB; run {}",
        bundle.display(),
        tests.len(),
        bytes >> 20,
        script.display()
    );
    if bytes > MAX_BYTES {
        bail!("the bundle is larger than {} MB", MAX_BYTES / 1_000_000);
    }
    Ok(())
}

/// Builds the plugin of `examples/rust-plugin`, which is not a member of the workspace.
fn example_plugin(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target.join("examples");
    let mut build = cargo();
    build.current_dir(workspace.root.join("examples/rust-plugin"));
    run_command(build.args(["build", "--release", "--locked", "--target-dir"]).arg(&target))?;
    Ok(target.join("release/libcrossdock_example_plugin.so"))
}

/// Creates an empty folder, and removes an old one.
fn fresh(folder: PathBuf) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Builds the test programs that use devices. They can run on a machine without Cargo and without a
/// C compiler.
fn test_programs(workspace: &Workspace) -> Result<Vec<Program>> {
    let tested = |package: &&Package| crate::test::sim_cuda::TESTED.contains(&package.folder.as_str());
    let packages = workspace.packages.iter().filter(tested);
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["test", "--profile", "bundle", "--lib", "--bins", "--tests"]);
    command.args(packages.flat_map(|package| ["-p", &package.name]));
    programs::built_by(workspace, &mut command)
}

/// Copies a file into a folder, and removes debug information if there is a `strip`.
fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("{} is not a file", file.display()))?;
    let target = folder.join(name);
    fs::copy(file, &target).with_context(|| format!("cannot copy {}", file.display()))?;
    // A failure is ignored, because the bundle also works without `strip`, but is larger.
    drop(Command::new("strip").arg("--strip-debug").arg(&target).output());
    Ok(())
}
