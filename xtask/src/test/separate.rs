//! Builds a plugin that is not in the workspace, and runs its tests.

use super::{Outcome, Run, python, stream};
use crate::cargo::cargo;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A plugin with its own workspace and lock file.
pub struct Plugin {
    /// The folder of the plugin.
    pub folder: &'static str,
    /// The plugin's file in its build folder.
    pub file: &'static str,
    /// The target folder of the plugin, within the workspace's.
    pub target: &'static str,
    /// The folder of the tests in Python.
    pub tests: &'static str,
    /// The environment variable from which the tests in Python take the plugin's path.
    pub variable: &'static str,
}

impl Plugin {
    /// Runs the plugin's own tests, and the tests in Python with the environment variables
    /// `variables`, which get the interpreter and the target folder.
    pub fn run<V>(&self, run: &Run<'_>, variables: V) -> Result<Outcome>
    where
        V: FnOnce(&Path, &Path) -> Result<Vec<(&'static str, PathBuf)>>,
    {
        let workspace = run.workspace;
        let target = workspace.target.join(self.target);
        let build = |verb: &str| {
            let mut command = cargo();
            command.current_dir(workspace.root.join(self.folder)).arg(verb).arg("--locked");
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
        pytest.env(self.variable, target.join(profile).join(self.file));
        pytest.envs(variables(&interpreter, &target)?);
        pytest.args(["-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]);
        // The fixtures of all tests in Python are in the folder above.
        pytest.args(python::IN_PARALLEL).arg(format!("--confcutdir={}", python::FOLDER));
        let filter: Vec<&str> = run.filter.as_deref().map(|filter| vec!["-k", filter]).unwrap_or_default();
        Ok(rust.and(stream::pytest(pytest.arg(self.tests).args(filter), run.filter.is_some())?))
    }
}
