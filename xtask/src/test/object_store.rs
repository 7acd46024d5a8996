//! Builds the plugin object-store, which is not in the workspace, and runs its tests.

use super::separate::Plugin;
use super::{Outcome, Run, stream};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin.
pub const PLUGIN: Plugin = Plugin {
    folder: "plugins/object-store",
    file: "libcrossdock_object_store_plugin.so",
    target: "object-store",
    tests: "tests/python/object_store",
    variable: "CROSSDOCK_OBJECT_STORE_PLUGIN",
};
/// The S3 server that the tests start. It is not in the requirements of the other tests, because it
/// has many dependencies.
const MOTO: &str = "moto[server]==5.2.5";

/// Runs the plugin's own tests, and the tests against an HTTP server and an S3 server on this
/// machine. Tests of the S3 server are skipped if it cannot be installed.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    PLUGIN.run(run, |python, target| {
        Ok(moto(python, target)?.map(|folder| ("CROSSDOCK_MOTO", folder)).into_iter().collect())
    })
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
