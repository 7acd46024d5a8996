//! Runs tests under AddressSanitizer: the tests of code that uses raw memory or the ABI, including
//! plugins and the Python module.

use super::{Outcome, Run, python, stream};
use crate::cargo::{Workspace, show};
use crate::{nightly, programs};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders whose tests do not run under the sanitizer. A crate in these folders uses no raw memory,
/// is loaded into other programs, or switches stacks in a way that the sanitizer does not support.
const EXCLUDED: &[&str] = &["xtask", "benches", "capi", "python", "tests/models"];

/// Excluded tests of the Python package. Some of these tests measure memory, and the sanitizer
/// delays the release of memory. The other tests start programs that cannot run with the sanitizer:
/// compilers, type checkers, jax, other interpreters, and the package's command, which has a
/// sanitizer of its own in addition to the preloaded one.
const EXCLUDED_PYTHON: &[&str] = &[
    "test_leaks.py",
    "test_dlpack_leaks.py",
    "test_stubs.py",
    "test_extension.py",
    "test_isolation.py",
    "test_third_party.py",
    "test_package_docs.py",
    "test_page_blocks.py",
    "test_command.py",
    "test_dlpack_jax.py",
];

/// The supported platforms whose toolchain has AddressSanitizer.
const TARGETS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Groups of folders. The short tier runs one group in addition to `ALWAYS`.
const SHORT: &[&[&str]] = &[
    &["kernels", "plugins/arrow-ipc", "plugins/arrow-c-device", "plugins/dlpack"],
    &["plugins/encodings", "plugins/arrow-text", "python"],
    &["host", "isolation", "cli", "tests/sim-cuda"],
    &["tests/suite"],
];
/// Test programs that the short tier omits, because they run for minutes and mostly in separate
/// processes.
const LONG: &[&str] = &["verify", "cuda_faults", "stress", "stress_plugins"];
/// The folders that the short tier always runs.
const ALWAYS: &[&str] = &["plugin-api", "memory", "arrays"];

/// The folder of the command. Tests in other folders start the command.
const STARTED: &str = "cli";
/// Folders whose tests start the command or load plugins and other libraries.
const LOADING: &[&str] = &["host", "isolation", "cli", "tests/suite", "tests/skew"];

/// Whether a folder is in the list, or inside a folder in the list.
fn is_in(folder: &str, folders: &[&str]) -> bool {
    folders.iter().any(|other| Path::new(folder).starts_with(other))
}

/// Builds plugins and tests with a nightly toolchain, and runs the tests. Skipped if there is no
/// nightly toolchain.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let Some(target) = nightly::host()? else {
        return Ok(Outcome::Skipped("no nightly toolchain".to_owned()));
    };
    let target = target.as_str();
    if !TARGETS.contains(&target) {
        return Ok(Outcome::Skipped(format!("no AddressSanitizer for {target}")));
    }
    let is_short = run.tier.is_short();
    let sampled = is_short.then(|| run.tier.one_of("sanitized crates", SHORT));
    // The step `rust` runs every repetition of a test. Under the sanitizer, a sample suffices, and
    // everything would take longer than all other steps together.
    let run = &Run { tier: run.tier.sampled(workspace), filter: run.filter.clone(), ..*run };
    let selected = |folder: &str| {
        sampled.is_none_or(|groups| is_in(folder, ALWAYS) || groups.iter().any(|group| is_in(folder, group)))
    };
    let tested = workspace.packages.iter().filter(|p| !is_in(&p.folder, EXCLUDED) && selected(&p.folder));
    let packages: Vec<&str> = tested.map(|p| p.name.as_str()).collect();
    stream::line(&format!("the tests of {}", packages.join(", ")));
    let with_package = selected(crate::python::FOLDER);
    // Builds the Python module in the same run of Cargo as the libraries that the tests load, so
    // that Cargo chooses the same features for both.
    let mut built = packages.clone();
    if workspace.packages.iter().any(|p| is_in(&p.folder, LOADING) && selected(&p.folder)) {
        let loaded = workspace.packages.iter().filter(|package| {
            !is_in(&package.folder, EXCLUDED) && (!package.cdylibs.is_empty() || package.folder == STARTED)
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
    programs.retain(|program| !is_short || !LONG.contains(&program.name.as_str()));
    let rust = run.programs(&programs, &environment(workspace))?;
    if !with_package {
        return Ok(rust);
    }
    Ok(rust.and(package(run, &workspace.target.join("asan").join(target).join("debug"))?))
}

/// Runs the tests of the Python package, with the sanitizer preloaded into the interpreter.
fn package(run: &Run<'_>, built: &Path) -> Result<Outcome> {
    // The sanitizer aborts at the first exception of C++ if the library of C++ is loaded after it,
    // as by an extension module.
    let (Some(sanitizer), Some(cpp)) = (compiler_file("libasan.so"), compiler_file("libstdc++.so.6")) else {
        return Ok(Outcome::Skipped(
            "the C compiler has no libasan.so or libstdc++.so.6, which Python must load".to_owned(),
        ));
    };
    let preloaded = format!("{}:{}", sanitizer.display(), cpp.display());
    let workspace = run.workspace;
    let layout = crate::python::lay_out(workspace, built)?;
    let interpreter = python::environment(workspace)?;
    let command = || {
        let mut command = Command::new(&interpreter);
        command.current_dir(&workspace.root).env("PYTHONPATH", &layout).env("LD_PRELOAD", &preloaded);
        // Disables the detection of leaks, because the interpreter itself leaks.
        command.env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    // First checks that the sanitizer detects an overrun.
    let mut overrun = command();
    overrun.arg(format!("{}/overrun.py", python::PACKAGE));
    let output = overrun.output().with_context(|| format!("cannot start {}", show(&overrun)))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !stderr.contains("AddressSanitizer: heap-buffer-overflow") {
        let last_line = stderr.lines().next_back().unwrap_or_default().to_owned();
        return Ok(Outcome::check(Err(anyhow::anyhow!("{} was not detected: {last_line}", show(&overrun)))));
    }
    let mut pytest = command();
    run.tier.tell(&mut pytest);
    pytest.args(["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not cuda"]);
    pytest.args(python::IN_PARALLEL);
    pytest.args(EXCLUDED_PYTHON.iter().map(|name| format!("--ignore={}/{name}", python::PACKAGE)));
    pytest.arg(format!("--confcutdir={}", python::PACKAGE));
    match run.filter.as_deref() {
        None => pytest.arg(python::PACKAGE),
        // The filter is a file or a test of pytest.
        Some(filter) if filter.contains(".py") => pytest.arg(filter),
        Some(filter) => pytest.args(["-k", filter, python::PACKAGE]),
    };
    stream::pytest(&mut pytest, run.filter.is_some())
}

/// A library of the C compiler. Rust's own sanitizer library cannot be preloaded, because it can
/// only be linked into programs.
fn compiler_file(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // If the compiler does not have the library, it prints the library's name without a path.
    path.is_absolute().then_some(path).filter(|path| path.exists())
}

fn sanitized(workspace: &Workspace, target: &str, what: &str, packages: &[&str]) -> Command {
    let mut command = nightly::program("cargo");
    // Plugins use the sanitizer's functions of the program that loads them. The programs export
    // only these functions. With -rdynamic, the programs would keep all unused code, and together
    // would fill a disk.
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

/// The environment variables of the test programs.
fn environment(workspace: &Workspace) -> [(&'static str, String); 3] {
    // Some tests make an invalid access in a child process and expect a signal. By default, the
    // sanitizer would end the child with an exit status instead.
    let options =
        std::env::var("ASAN_OPTIONS").unwrap_or_else(|_| "handle_segv=0:handle_sigbus=0".to_owned());
    let forgiven = workspace.root.join("xtask/src/test/lsan.supp");
    [
        // The compiler flags with which tests build plugins in C for the sanitizer.
        ("CROSSDOCK_TEST_C_FLAGS", "-fsanitize=address".to_owned()),
        ("ASAN_OPTIONS", options),
        ("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", forgiven.display())),
    ]
}
