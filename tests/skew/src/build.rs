//! Builds fixtures: the one in Rust by Cargo, the one in C by whatever compiler is asked for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Skipped;
use crate::sources::{Sources, folder};

/// What would make Cargo build as this test was built, rather than as its author would.
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

/// Cargo as its author would call it, if it is there.
fn cargo(nightly: bool) -> Result<Command, Skipped> {
    let cargo = || {
        let mut command = Command::new("cargo");
        INHERITED.iter().for_each(|variable| {
            command.env_remove(variable);
        });
        command.args(nightly.then_some("+nightly"));
        command
    };
    let answers = cargo().arg("--version").output().is_ok_and(|output| output.status.success());
    if answers {
        return Ok(cargo());
    }
    Err(if nightly { "no nightly toolchain" } else { "no cargo" }.into())
}

/// The Rust fixture, by the default toolchain at opt-level 0, or by the nightly one at opt-level 3 with LTO.
pub fn rust(sources: &Sources, nightly: bool) -> Result<PathBuf, Skipped> {
    sources.are_there()?;
    let target = sources.made.join("build");
    let mut command = cargo(nightly)?;
    command.args(["build", "--offline", "--manifest-path"]);
    command.arg(sources.at("tests/skew/fixtures/rust/Cargo.toml")).arg("--target-dir").arg(&target);
    command.args(nightly.then_some("--release"));
    run(&mut command);
    let built = target.join(if nightly { "release" } else { "debug" }).join("libcrossdock_skew_plugin.so");
    let to = place(sources, if nightly { "rust-nightly-lto" } else { "rust-debug" });
    copied(&built, &to);
    Ok(to)
}

/// What Cargo and the compiler say of themselves: another toolchain makes another build.
pub fn toolchain() -> Result<String, Skipped> {
    let output =
        cargo(false)?.args(["--version", "--verbose"]).output().map_err(|error| error.to_string())?;
    let rustc = Command::new("rustc").env_remove("RUSTUP_TOOLCHAIN").arg("-vV").output();
    let rustc = rustc.map_err(|error| format!("rustc: {error}"))?;
    Ok(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&rustc.stdout)))
}

/// Some packages of a whole workspace, and the folder that they are built into, which the next release's are built into as well:
/// what they have in common is built once. An error where one of its dependencies is neither on this machine nor to be had.
pub fn workspace(sources: &Sources, packages: &[&str]) -> Result<PathBuf, Skipped> {
    let target = folder().join("workspaces");
    let of = |command: &mut Command| {
        command.args(["--locked", "--manifest-path"]).arg(sources.at("Cargo.toml"));
    };
    // What it was released with may be no dependency of today's.
    let mut fetch = cargo(false)?;
    // Not what other systems would need.
    let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    of(fetch.args(["fetch", "--target", &here]));
    let output = fetch.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo: {}", said.lines().next().unwrap_or("failed").trim()));
    }
    let mut command = cargo(false)?;
    of(command.args(["build", "--offline"]));
    packages.iter().for_each(|package| {
        command.args(["--package", package]);
    });
    // Dependencies run for seconds, and optimising them takes minutes.
    command.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    // Nobody debugs them, and nothing of them is ever built again after a change.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    run(command.arg("--target-dir").arg(&target));
    Ok(target.join("debug"))
}

/// A copy of its own: Cargo must not write over what a host has mapped.
pub fn copied(built: &Path, to: &Path) {
    replace(to, |fresh| {
        std::fs::copy(built, fresh).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    });
}

/// Makes a file anew in one step: who has the last run's mapped keeps it, and another thread that makes the same finds one of
/// the two.
fn replace(to: &Path, make: impl FnOnce(&Path)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = to.with_extension(format!("{}-{number}", std::process::id()));
    make(&fresh);
    allow(&fresh);
    std::fs::rename(&fresh, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// How the fixture in C is built.
#[derive(Clone, Default)]
pub struct C<'a> {
    /// Of what is made; for messages and file names.
    pub name: &'a str,
    /// Of another plugin in C, where that is built and not the fixture.
    pub folder: Option<&'a str>,
    /// The compiler; `CC` or `cc` if not given.
    pub compiler: Option<&'a str>,
    /// For the compiler.
    pub flags: &'a [&'a str],
    /// The header to build against, if not the sources' own.
    pub header: Option<String>,
}

/// The fixture in C, or another plugin.
pub fn c(sources: &Sources, how: &C<'_>) -> Result<PathBuf, Skipped> {
    sources.are_there()?;
    let given = std::env::var("CC").ok().filter(|cc| !cc.trim().is_empty()).unwrap_or_else(|| "cc".into());
    let mut words = how.compiler.unwrap_or(&given).split_whitespace();
    let program = words.next().unwrap_or("cc");
    if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Err(format!("no compiler '{program}'"));
    }
    let to = place(sources, how.name);
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
    files.retain(|path| path.extension().is_some_and(|ending| ending == "c"));
    files.sort();
    files
}

fn place(sources: &Sources, name: &str) -> PathBuf {
    let folder = sources.made.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join("libcrossdock_skew_plugin.so")
}

/// Whatever the umask of the one who runs the tests.
fn allow(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}
