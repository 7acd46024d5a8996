//! Builds fixtures: the Rust fixture with Cargo, and the C fixture with a selected compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Skipped;
use crate::sources::{Sources, target_folder};

/// Environment variables that the Cargo of this test sets, and that would change how another Cargo
/// builds the fixtures.
const INHERITED: &[&str] = &[
    "RUSTUP_TOOLCHAIN",
    "CARGO",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
];

/// Cargo with the environment of a plugin author, if it is installed.
fn cargo(nightly: bool) -> Result<Command, Skipped> {
    let cargo = || {
        let mut command = Command::new("cargo");
        INHERITED.iter().for_each(|variable| {
            command.env_remove(variable);
        });
        command.args(nightly.then_some("+nightly"));
        command
    };
    let is_installed = cargo().arg("--version").output().is_ok_and(|output| output.status.success());
    if is_installed {
        return Ok(cargo());
    }
    Err(if nightly { "no nightly toolchain" } else { "no cargo" }.into())
}

/// Builds the Rust fixture, either with the default toolchain at opt-level 0, or with the nightly
/// toolchain at opt-level 3 with LTO.
pub fn rust(sources: &Sources, nightly: bool) -> Result<PathBuf, Skipped> {
    sources.check_fixtures()?;
    let target = sources.output.join("build");
    let mut command = cargo(nightly)?;
    command.args(["build", "--offline", "--manifest-path"]);
    command.arg(sources.at("tests/skew/fixtures/rust/Cargo.toml")).arg("--target-dir").arg(&target);
    command.args(nightly.then_some("--release"));
    run(&mut command);
    let built = target.join(if nightly { "release" } else { "debug" }).join("libcrossdock_skew_plugin.so");
    let to = output_file(sources, if nightly { "rust-nightly-lto" } else { "rust-debug" });
    copy_file(&built, &to);
    Ok(to)
}

/// The versions of Cargo and the compiler, which decide whether a build can be reused.
pub fn toolchain() -> Result<String, Skipped> {
    let output =
        cargo(false)?.args(["--version", "--verbose"]).output().map_err(|error| error.to_string())?;
    let rustc = Command::new("rustc").env_remove("RUSTUP_TOOLCHAIN").arg("-vV").output();
    let rustc = rustc.map_err(|error| format!("rustc: {error}"))?;
    Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&rustc.stdout)))
}

/// Builds packages of a release's workspace. Returns the target folder, which all releases share,
/// so that common dependencies are built only once. Fails if a dependency is neither on this
/// machine nor available for download.
pub fn workspace(sources: &Sources, packages: &[&str]) -> Result<PathBuf, Skipped> {
    let target = target_folder().join("workspaces");
    let select_workspace = |command: &mut Command| {
        command.args(["--locked", "--manifest-path"]).arg(sources.at("Cargo.toml"));
    };
    // Downloads the release's dependencies, because the working tree may not have the same
    // dependencies.
    let mut fetch = cargo(false)?;
    // Omits the dependencies of other systems.
    let host_target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    select_workspace(fetch.args(["fetch", "--target", &host_target]));
    let output = fetch.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo: {}", stderr.lines().next().unwrap_or("failed").trim()));
    }
    let mut command = cargo(false)?;
    select_workspace(command.args(["build", "--offline"]));
    packages.iter().for_each(|package| {
        command.args(["--package", package]);
    });
    // Optimised dependencies would save seconds at run time, but take minutes to build.
    command.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    // The sources of a release never change, so neither debug information nor incremental state is
    // needed.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    run(command.arg("--target-dir").arg(&target));
    Ok(target.join("debug"))
}

/// Copies a built file, because Cargo must not overwrite a file that a host has mapped.
pub fn copy_file(built: &Path, to: &Path) {
    replace(to, |fresh| {
        std::fs::copy(built, fresh).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    });
}

/// Replaces a file atomically: a process that has the old file mapped keeps it, and concurrent
/// threads see the old or the new file.
fn replace(to: &Path, write: impl FnOnce(&Path)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = to.with_extension(format!("{}-{number}", std::process::id()));
    write(&fresh);
    make_executable(&fresh);
    std::fs::rename(&fresh, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// How a fixture in C is built.
#[derive(Clone, Default)]
pub struct C<'a> {
    /// The name of the build, for messages and file names.
    pub name: &'a str,
    /// The folder of the plugin's sources. `None` means the folder of the fixture.
    pub folder: Option<&'a str>,
    /// The compiler and its first arguments. `None` means the environment variable `CC` or `cc`.
    pub compiler: Option<&'a str>,
    /// Compiler flags.
    pub flags: &'a [&'a str],
    /// The content of crossdock.h. `None` means the header of the sources.
    pub header: Option<String>,
}

/// Builds the C fixture, or another plugin in C.
pub fn c(sources: &Sources, how: &C<'_>) -> Result<PathBuf, Skipped> {
    sources.check_fixtures()?;
    let default_compiler =
        std::env::var("CC").ok().filter(|cc| !cc.trim().is_empty()).unwrap_or_else(|| "cc".into());
    let mut words = how.compiler.unwrap_or(&default_compiler).split_whitespace();
    let program = words.next().unwrap_or("cc");
    if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Err(format!("no compiler '{program}'"));
    }
    let to = output_file(sources, how.name);
    let include = match &how.header {
        None => sources.at("plugin-api/include"),
        Some(header) => {
            let folder = to.with_extension("include");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("crossdock.h"), header).unwrap();
            folder
        }
    };
    let mut command = Command::new(program);
    command.args(words).args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]).args(how.flags);
    command
        .arg("-I")
        .arg(include)
        .args(c_files(&sources.at(how.folder.unwrap_or("tests/skew/fixtures/c"))))
        .arg("-o");
    replace(&to, |fresh| run(command.arg(fresh)));
    Ok(to)
}

fn c_files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    files
}

fn output_file(sources: &Sources, name: &str) -> PathBuf {
    let folder = sources.output.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("libcrossdock_skew_plugin.so")
}

/// Sets the permissions of the file, so that they do not depend on the umask.
fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}
