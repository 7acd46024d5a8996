//! Runs the tests in Python, in a virtual environment.

use super::counts::Counts;
use super::{Outcome, Run, avro, engines, object_store, parquet, stream, vortex_writer};
use crate::cargo::{Workspace, run as run_command};
use crate::sim_cuda::lay_out;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The interpreters to try, in this order.
const PYTHONS: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];

/// The tests of the command and of libcrossdock that run on the simulated CUDA driver. They run in
/// a separate process, because the driver must be in `LD_LIBRARY_PATH` when the process starts.
const ON_CUDA: [&str; 2] = ["tests/python/test_cuda_files.py", "tests/python/test_cuda_capi.py"];

/// The folder of all tests in Python.
pub const FOLDER: &str = "tests/python";

/// The tests of the Python package. Tests that need a CUDA driver are marked `cuda`.
pub const PACKAGE: &str = "tests/python/package";

/// The arguments of pytest. Tests run in one process per core, or fewer if there is little memory.
/// Idle processes take over tests from other processes. Only the temporary folders of failed tests
/// are kept.
pub const IN_PARALLEL: [&str; 8] =
    ["-n", "auto", "--maxprocesses", "8", "--dist", "worksteal", "-o", "tmp_path_retention_policy=failed"];

/// The folders of sources in Python that are checked.
const SOURCES: [&str; 5] = ["python", "tests/python", "benches", "docs/site", "examples"];

/// Runs the tests of the command and of the package on this machine. Tests for devices also run on
/// the simulated CUDA driver. Checks sources and stubs.
pub(super) fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let crossdock = &workspace.built(run.release).join("crossdock");
    if !crossdock.exists() {
        bail!("{} does not exist; the step `build` builds it", crossdock.display());
    }
    let python = environment(workspace)?;
    let layout = crate::python::lay_out(workspace, crossdock.parent().unwrap_or(crossdock))?;
    let simulated = lay_out(workspace, &[])?;
    let program = |module: &str| {
        let mut command = Command::new(&python);
        command.current_dir(&workspace.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", &layout);
        run.tier.tell(&mut command);
        command.args(["-m", module]);
        command
    };
    let pytest = |folder: &str| {
        let mut command = program("pytest");
        command.env("CROSSDOCK_BIN", crossdock);
        command.env("CROSSDOCK_LIB", crossdock.with_file_name("libcrossdock.so"));
        command.args(["-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider"]).args(IN_PARALLEL);
        command.arg(format!("--confcutdir={folder}"));
        command
    };
    let check = |command: &mut Command| Outcome::check(stream::check(command));
    // The package keeps some sessions for the whole process, such as the sessions of
    // crossdock.cuda. Therefore the simulated driver does not report leaks. When a test closes its
    // own session, the session's leaks are checked.
    let leak_policy = ("CROSSDOCK_SIM_CUDA_LEAKS", "ignore");
    let mut all = Outcome::Passed(Counts::default());
    if let Some(filter) = run.filter.as_deref().filter(|filter| filter.contains(".py")) {
        // If the filter selects a file or test, it runs on the simulated driver, because the driver
        // does not affect tests without devices.
        let folder = if filter.starts_with(PACKAGE) { PACKAGE } else { FOLDER };
        let mut command = pytest(folder);
        return stream::pytest(
            command.arg(filter).env("LD_LIBRARY_PATH", &simulated).env(leak_policy.0, leak_policy.1),
            false,
        );
    }
    let filter: Vec<&str> = run.filter.as_deref().map(|filter| vec!["-k", filter]).unwrap_or_default();
    if run.filter.is_none() {
        for rules in [&["check"][..], &["format", "--check"]] {
            all = all.and(check(program("ruff").args(rules).args(["--quiet", "--no-cache"]).args(SOURCES)));
        }
        all = all.and(check(program("mypy.stubtest").arg("crossdock").current_dir(&layout)));
    }
    let separate = [object_store::PLUGIN, vortex_writer::PLUGIN, parquet::PLUGIN, avro::PLUGIN]
        .map(|plugin| plugin.tests);
    let elsewhere = ON_CUDA.into_iter().chain([PACKAGE, engines::TESTS]).chain(separate);
    let elsewhere = elsewhere.map(|file| format!("--ignore={file}"));
    let mut parts = [
        (pytest(FOLDER), Vec::from_iter(elsewhere.chain([FOLDER.to_owned()])), false),
        (pytest(FOLDER), ON_CUDA.map(str::to_owned).to_vec(), true),
        (pytest(PACKAGE), ["-m", "not cuda", PACKAGE].map(str::to_owned).to_vec(), false),
        (pytest(PACKAGE), ["-m", "cuda", PACKAGE].map(str::to_owned).to_vec(), true),
    ];
    for (command, arguments, cuda) in &mut parts {
        if *cuda {
            command.env("LD_LIBRARY_PATH", &simulated).env(leak_policy.0, leak_policy.1);
        }
        all = all.and(stream::pytest(command.args(arguments).args(&filter), run.filter.is_some())?);
    }
    Ok(all)
}

/// Builds the wheel in the way pip does, but without optimisation. Installs the wheel in an
/// environment without other packages, and uses it.
pub fn wheel(workspace: &Workspace) -> Result<()> {
    let python = &environment(workspace)?;
    let folder = workspace.target.join("wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut path = python.parent().unwrap_or(python).as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut build = Command::new(python);
    build.current_dir(&workspace.root).env("PATH", path).env("CARGO_TARGET_DIR", &workspace.target);
    build.args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "./python", "--no-deps"]);
    // Uses the pinned maturin of the environment.
    build.args(["--no-build-isolation", "--config-settings", "profile=dev", "--wheel-dir"]).arg(&folder);
    stream::check(&mut build)?;
    let wheels: Vec<_> = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let [wheel] = wheels.as_slice() else { bail!("expected one wheel, got {wheels:?}") };
    let venv = folder.join("venv");
    run_command(Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    let python = venv.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]).arg(wheel);
    run_command(&mut install)?;
    let mut smoke = Command::new(&python);
    smoke.current_dir(&folder).arg(workspace.root.join(PACKAGE).join("smoke.py"));
    run_command(smoke.arg(workspace.root.join("examples/data/flights-january.arrow")))
}

/// The interpreter of `target/venv`, which has the packages in `tests/python/requirements.txt`.
pub fn environment(workspace: &Workspace) -> Result<PathBuf> {
    environment_of(workspace, "venv", "tests/python/requirements.txt")
}

/// The interpreter of an environment in the target folder, which has the packages in the file
/// `requirements`. It is created again if that file has changed.
pub fn environment_of(workspace: &Workspace, name: &str, requirements: &str) -> Result<PathBuf> {
    let wanted_path = workspace.root.join(requirements);
    let wanted = fs::read(&wanted_path).with_context(|| format!("cannot read {}", wanted_path.display()))?;
    let folder = workspace.target.join(name);
    let python = folder.join("bin/python");
    // The copy of the requirements in the environment is written last, so that it exists only if
    // the environment is complete.
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
