//! Builds the plugin object-store, which is not in the workspace, and runs its tests.

use super::{Outcome, Run, python, stream};
use crate::cargo::cargo;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the plugin.
const PLUGIN: &str = "plugins/object-store";
/// The plugin's file in its build folder.
const FILE: &str = "libcrossdock_object_store_plugin.so";
/// The target folder of the plugin, within the workspace's.
const TARGET: &str = "object-store";
/// The tests in Python.
pub const TESTS: &str = "tests/python/object_store";
/// The S3 server that the tests start. It is not in the requirements of the other tests, because it
/// has many dependencies.
const MOTO: &str = "moto[server]==5.2.5";

/// Runs the plugin's own tests, and the tests against an HTTP server and an S3 server on this
/// machine. Tests of the S3 server are skipped if it cannot be installed.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let target = workspace.target.join(TARGET);
    let build = |verb: &str| {
        let mut command = cargo();
        command.current_dir(workspace.root.join(PLUGIN)).arg(verb).arg("--locked");
        command.arg("--target-dir").arg(&target).args(run.release.then_some("--release"));
        command
    };
    stream::check(&mut build("build"))?;
    let rust = stream::cargo_test(build("test").arg("--").args(run.filter.as_slice()))?;
    let profile = if run.release { "release" } else { "debug" };
    let crossdock = workspace.built(run.release).join("crossdock");
    if !crossdock.exists() {
        bail!("{} does not exist; the step `build` builds it", crossdock.display());
    }
    let interpreter = python::environment(workspace)?;
    let layout = crate::python::lay_out(workspace, crossdock.parent().unwrap_or(&crossdock))?;
    let mut pytest = Command::new(&interpreter);
    pytest.current_dir(&workspace.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", &layout);
    pytest.env("CROSSDOCK_BIN", &crossdock);
    pytest.env("CROSSDOCK_OBJECT_STORE_PLUGIN", target.join(profile).join(FILE));
    if let Some(folder) = moto(&interpreter, &target)? {
        pytest.env("CROSSDOCK_MOTO", folder);
    }
    pytest.args(["-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]);
    // The fixtures of all tests in Python are in the folder above.
    pytest.args(python::IN_PARALLEL).arg(format!("--confcutdir={}", python::FOLDER));
    let filter: Vec<&str> = run.filter.as_deref().map(|filter| vec!["-k", filter]).unwrap_or_default();
    Ok(rust.and(stream::pytest(pytest.arg(TESTS).args(filter), run.filter.is_some())?))
}

/// The folder with the packages of the S3 server, which is filled if it does not exist. `None` if
/// the packages cannot be installed, for example without a network.
fn moto(python: &Path, target: &Path) -> Result<Option<PathBuf>> {
    let folder = target.join("moto");
    let installed = folder.join("installed");
    if std::fs::read(&installed).is_ok_and(|version| version == MOTO.as_bytes()) {
        return Ok(Some(folder));
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"]);
    if !stream::status(pip.arg(&folder).arg(MOTO))?.success() {
        stream::line("skipped: the tests of an S3 server: moto cannot be installed");
        return Ok(None);
    }
    std::fs::write(&installed, MOTO)?;
    Ok(Some(folder))
}
