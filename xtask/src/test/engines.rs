//! Runs the tests with query engines that have many dependencies: the crate for DataFusion, which
//! is not in the workspace, and Ray and Dask in an environment of their own.

use super::{Outcome, Run, python, stream};
use crate::cargo::{self, Workspace, cargo};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// The folder of the tests.
pub const TESTS: &str = "tests/python/engines";

/// Runs the tests. Those in Python are skipped if the packages cannot be installed, for example
/// without a network.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let crossdock = workspace.built(run.release).join("crossdock");
    if !crossdock.exists() {
        bail!("{} does not exist; the step `build` builds it", crossdock.display());
    }
    let plugins = crossdock.parent().unwrap_or(&crossdock);
    let mut datafusion = cargo();
    datafusion.current_dir(workspace.root.join("integrations/datafusion")).args(["test", "--locked"]);
    datafusion.arg("--target-dir").arg(workspace.target.join("datafusion")).env("CROSSDOCK_PLUGINS", plugins);
    let rust = stream::cargo_test(datafusion.arg("--").args(run.filter.as_slice()))?;
    let module = build_module(workspace)?;
    let layout = crate::python::lay_out(workspace, plugins)?;
    let interpreter =
        match python::environment_of(workspace, "engines", "tests/python/engines/requirements.txt") {
            Ok(interpreter) => interpreter,
            Err(error) => {
                let skipped = format!("the environment cannot be created: {error:#}");
                return Ok(rust.and(Outcome::Skipped(skipped)));
            }
        };
    let mut pytest = Command::new(interpreter);
    let path = std::env::join_paths([&layout, &module])?;
    pytest.current_dir(&workspace.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", path);
    // Tests start programs with the simulated driver in their LD_LIBRARY_PATH.
    pytest.env("CROSSDOCK_TEST_SIM_CUDA", crate::sim_cuda::lay_out(workspace, &[])?);
    // The tests start clusters, which use all cores, so they run one after another.
    pytest.args(["-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]);
    pytest.arg(format!("--confcutdir={TESTS}")).arg(TESTS);
    let filter: Vec<&str> = run.filter.as_deref().map(|filter| vec!["-k", filter]).unwrap_or_default();
    Ok(rust.and(stream::pytest(pytest.args(filter), run.filter.is_some())?))
}

/// Builds the module for DataFusion's Python package, and returns its folder.
fn build_module(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target.join("datafusion");
    let mut build = cargo();
    build.current_dir(workspace.root.join("integrations/datafusion"));
    build.args(["build", "--locked", "--quiet", "-p", "crossdock-datafusion-python", "--target-dir"]);
    cargo::run(build.arg(&target))?;
    let folder = target.join("python");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (library, module) =
        (target.join("debug/libcrossdock_datafusion.so"), folder.join("crossdock_datafusion.abi3.so"));
    drop(fs::remove_file(&module));
    symlink(&library, &module).with_context(|| format!("cannot create {}", module.display()))?;
    Ok(folder)
}
