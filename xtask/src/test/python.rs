//! The third-party peers, in an environment of their own.

use super::{Outcome, stream};
use crate::cargo::{Workspace, run as run_command};
use crate::sim_cuda::lay_out;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Newest first.
const PYTHONS: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];

/// What runs over the simulated CUDA driver, in a process that finds it from its start on.
const ON_CUDA: [&str; 2] = ["tests/python/test_cuda_files.py", "tests/python/test_cuda_capi.py"];

/// Makes the environment if it is not there as wanted, then runs pytest with `crossdock` as the command under test: once
/// over this machine, and once, the tests on devices, over the simulated CUDA driver.
pub fn run(workspace: &Workspace, crossdock: &Path) -> Result<Outcome> {
    if !crossdock.exists() {
        bail!("{} is not there: the step `build` makes it", crossdock.display());
    }
    let python = environment(workspace)?;
    let pytest = || {
        let mut command = Command::new(&python);
        command.current_dir(&workspace.root).env("CROSSDOCK_BIN", crossdock);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("CROSSDOCK_LIB", crossdock.with_file_name("libcrossdock.so"));
        command.args(["-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider"]);
        command
    };
    let elsewhere = ON_CUDA.map(|file| format!("--ignore={file}"));
    let plain = stream::pytest(pytest().args(elsewhere).arg("tests/python"))?;
    let simulated = lay_out(workspace, &[])?;
    let on_cuda = stream::pytest(pytest().args(ON_CUDA).env("LD_LIBRARY_PATH", simulated))?;
    Ok(plain.and(&on_cuda))
}

/// The interpreter of `target/venv`, which holds what `tests/python/requirements.txt` pins. It is made anew when
/// that file has changed since.
fn environment(workspace: &Workspace) -> Result<PathBuf> {
    let wanted_path = workspace.root.join("tests/python/requirements.txt");
    let wanted = fs::read(&wanted_path).with_context(|| format!("cannot read {}", wanted_path.display()))?;
    let folder = workspace.target.join("venv");
    let python = folder.join("bin/python");
    // A copy of the pins, written last: it is there only if the environment is whole.
    let installed = folder.join("requirements.txt");
    if python.exists() && fs::read(&installed).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    let base = find_python()?;
    println!("making {} with {base} ...", folder.display());
    run_command(Command::new(base).args(["-m", "venv", "--clear"]).arg(&folder))
        .context("Python needs its module venv")?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&wanted_path);
    run_command(&mut pip)?;
    fs::write(&installed, wanted).with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(python)
}

fn find_python() -> Result<&'static str> {
    let enough = |name: &&str| {
        let question = "import sys, venv; sys.exit(sys.version_info < (3, 11))";
        Command::new(name).args(["-c", question]).output().is_ok_and(|o| o.status.success())
    };
    PYTHONS.iter().copied().find(|name| enough(name)).context("no Python 3.11 or newer with venv on the PATH")
}
