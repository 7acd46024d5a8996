//! The tests of everything that touches raw memory or the boundary, under AddressSanitizer, plugins and the Python module
//! included.

use super::{Outcome, Run, python, stream};
use crate::cargo::{Workspace, show};
use crate::{nightly, programs};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders whose crates have no such tests: they touch no raw memory, need a program of their own to be loaded into, or switch
/// stacks behind the sanitizer's back.
const LEFT_OUT: &[&str] = &["xtask", "benches", "capi", "python", "tests/models"];

/// Tests of the package that are not about memory or start what cannot run like this: a measure of memory, which the sanitizer
/// keeps; compilers and type checkers; jax; interpreters that are started without the sanitizer.
const NO_USE: &[&str] = &[
    "test_leaks.py",
    "test_dlpack_leaks.py",
    "test_stubs.py",
    "test_extension.py",
    "test_isolation.py",
    "test_third_party.py",
    "test_package_docs.py",
    "test_dlpack_jax.py",
];

/// Where AddressSanitizer comes with the toolchain, of the platforms that we support.
const TARGETS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// What the short tier runs one of, beside what every other crate stands on.
const SHORT: &[&[&str]] = &[
    &["kernels", "plugins/arrow-ipc", "plugins/arrow-c-device", "plugins/dlpack"],
    &["plugins/encodings", "python"],
    &["host", "isolation", "cli", "tests/sim-cuda"],
    &["tests/suite"],
];
/// Test programs that the short tier leaves out here: they run for minutes, and mostly in processes of their own.
const LONG: &[&str] = &["verify", "cuda_faults", "stress", "stress_plugins"];
/// What the short tier always runs.
const ALWAYS: &[&str] = &["plugin-api", "memory", "arrays"];

/// The command, which tests of other folders start.
const STARTED: &str = "cli";
/// The folders whose tests start the command and load plugins and other libraries.
const LOADING: &[&str] = &["host", "isolation", "cli", "tests/suite", "tests/skew"];

/// Whether a folder is one of these or lies in one.
fn is_in(folder: &str, folders: &[&str]) -> bool {
    folders.iter().any(|other| Path::new(folder).starts_with(other))
}

/// Builds plugins and tests with a nightly toolchain and runs them; skipped where there is none.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let Some(target) = nightly::host()? else {
        return Ok(Outcome::Skipped("no nightly toolchain".to_owned()));
    };
    let target = target.as_str();
    if !TARGETS.contains(&target) {
        return Ok(Outcome::Skipped(format!("no AddressSanitizer for {target}")));
    }
    let sampled = run.tier.is_short().then(|| run.tier.one_of("sanitized crates", SHORT));
    let selected = |folder: &str| {
        sampled.is_none_or(|groups| is_in(folder, ALWAYS) || groups.iter().any(|group| is_in(folder, group)))
    };
    let tested = workspace.packages.iter().filter(|p| !is_in(&p.folder, LEFT_OUT) && selected(&p.folder));
    let packages: Vec<&str> = tested.map(|p| p.name.as_str()).collect();
    stream::line(&format!("the tests of {}", packages.join(", ")));
    let with_package = selected(crate::python::FOLDER);
    // What the tests load, and with the module, so that one build settles on one set of features.
    let mut built = packages.clone();
    if workspace.packages.iter().any(|p| is_in(&p.folder, LOADING) && selected(&p.folder)) {
        let loaded = workspace.packages.iter().filter(|package| {
            !is_in(&package.folder, LEFT_OUT) && (!package.cdylibs.is_empty() || package.folder == STARTED)
        });
        built.extend(loaded.map(|package| package.name.as_str()));
    }
    if with_package {
        built.extend(crate::python::packages(workspace).map(|package| package.name.as_str()));
    }
    built.sort_unstable();
    built.dedup();
    stream::check(&mut sanitized(workspace, target, "build", &built))?;
    let mut programs = programs::built_by(workspace, &mut sanitized(workspace, target, "test", &packages))?;
    programs.retain(|program| !run.tier.is_short() || !LONG.contains(&program.name.as_str()));
    let rust = run.programs(&programs, &environment(workspace))?;
    if !with_package {
        return Ok(rust);
    }
    Ok(rust.and(package(run, &workspace.target.join("asan").join(target).join("debug"))?))
}

/// The tests of the Python package, with the sanitizer in the interpreter's process before everything else.
fn package(run: &Run<'_>, built: &Path) -> Result<Outcome> {
    let Some(runtime) = runtime() else {
        return Ok(Outcome::Skipped("no libasan.so beside the C compiler, for Python to load".to_owned()));
    };
    let workspace = run.workspace;
    let layout = crate::python::lay_out(workspace, built)?;
    let interpreter = python::environment(workspace)?;
    let command = || {
        let mut command = Command::new(&interpreter);
        command.current_dir(&workspace.root).env("PYTHONPATH", &layout).env("LD_PRELOAD", &runtime);
        // What the interpreter itself leaves behind is not ours to find.
        // Tests expect a process to end by its signal, which the sanitizer would turn into an exit.
        command.env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    // It is at work, or all that follows would say nothing.
    let mut overrun = command();
    overrun.arg(format!("{}/overrun.py", python::PACKAGE));
    let output = overrun.output().with_context(|| format!("cannot start {}", show(&overrun)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !said.contains("AddressSanitizer: heap-buffer-overflow") {
        let said = said.lines().next_back().unwrap_or_default().to_owned();
        return Ok(Outcome::check(Err(anyhow::anyhow!("{} was not noticed: {said}", show(&overrun)))));
    }
    let mut pytest = command();
    run.tier.tell(&mut pytest);
    pytest.args(["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not cuda"]);
    pytest.args(python::IN_PARALLEL);
    pytest.args(NO_USE.iter().map(|name| format!("--ignore={}/{name}", python::PACKAGE)));
    pytest.arg(format!("--confcutdir={}", python::PACKAGE));
    match run.filter.as_deref() {
        None => pytest.arg(python::PACKAGE),
        // A file or a test of pytest's.
        Some(filter) if filter.contains(".py") => pytest.arg(filter),
        Some(filter) => pytest.args(["-k", filter, python::PACKAGE]),
    };
    stream::pytest(&mut pytest, run.filter.is_some())
}

/// The sanitizer as a library, of the C compiler: Rust has it only for programs.
fn runtime() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=libasan.so").output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // Where there is none, it answers with the bare name.
    path.is_absolute().then_some(path).filter(|path| path.exists())
}

fn sanitized(workspace: &Workspace, target: &str, what: &str, packages: &[&str]) -> Command {
    let mut command = nightly::program("cargo");
    // The plugins find the sanitizer's functions in the program that loads them. These alone: with -rdynamic nothing unused
    // is left out of a program, and a hundred of them fill a disk.
    let exported = ["__asan_*", "__lsan_*", "__sanitizer_*", "__interceptor_*"]
        .map(|name| format!(",--export-dynamic-symbol={name}"));
    command.env("RUSTFLAGS", format!("-Zsanitizer=address -Clink-arg=-Wl{}", exported.concat()));
    command.env("CARGO_INCREMENTAL", "0");
    command.envs(environment(workspace));
    command.current_dir(&workspace.root).args([what, "--target", target, "--target-dir"]);
    command.arg(workspace.target.join("asan")).args(["--lib", "--bins", "--tests"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command
}

/// What the programs read while they run.
fn environment(workspace: &Workspace) -> [(&'static str, String); 3] {
    // Tests that plant a wild dereference in a child look for its signal, which the sanitizer would turn into an exit.
    let options =
        std::env::var("ASAN_OPTIONS").unwrap_or_else(|_| "handle_segv=0:handle_sigbus=0".to_owned());
    let forgiven = workspace.root.join("xtask/src/test/lsan.supp");
    [
        // Plugins in C that tests build find the sanitizer's functions there as well.
        ("CROSSDOCK_TEST_C_FLAGS", "-fsanitize=address".to_owned()),
        ("ASAN_OPTIONS", options),
        ("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", forgiven.display())),
    ]
}
