//! The tarball: a prefix with the command, the plugins, the library for C and C++, and
//! documentation.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::toolchain::Toolchain;
use crate::work::{Work, cargo, files, output, run, write};
use crate::{archive, dependencies, notices, sbom};

const DRIVER: &str = "crossdock-sim-cuda-driver";

/// The crates of plugins, which have a cdylib target.
pub fn plugin_crates(work: &Work) -> Result<Vec<String>> {
    let mut metadata = cargo();
    metadata.current_dir(&work.root).args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&output(&mut metadata)?)?;
    let folder = work.root.join("plugins");
    let is_plugin = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let mut targets = package["targets"].as_array().into_iter().flatten();
        Path::new(manifest).starts_with(&folder)
            && targets.any(|target| {
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
            })
    };
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let names = packages.iter().filter(is_plugin).filter_map(|package| package["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

pub fn build(work: &Work, toolchain: &Toolchain) -> Result<()> {
    let plugins = plugin_crates(work)?;
    let mut crates = vec!["crossdock-cli", "crossdock-capi"];
    crates.extend(plugins.iter().map(String::as_str));
    let mut build = cargo();
    build.current_dir(&work.root).args(["build", "--release", "--locked", "-p", DRIVER]);
    build.args(crates.iter().flat_map(|name| ["-p", name]));
    toolchain.apply(&mut build);
    run(&mut build)?;
    let built = work.target().join("release");

    let name = format!("crossdock-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let stage = work.target().join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot remove {}", stage.display()))?;
    }
    let prefix = stage.join(&name);
    fs::create_dir_all(&prefix)?;
    let mut install = cargo();
    install
        .current_dir(&work.root)
        .args(["xtask", "capi", "--prefix"])
        .arg(&prefix)
        .arg("--built")
        .arg(&built);
    run(&mut install)?;
    let command = prefix.join("bin/crossdock");
    copy(&built.join("crossdock"), &command, 0o755)?;
    let driver = prefix.join("lib/crossdock/sim-cuda");
    copy(&built.join("libcrossdock_sim_cuda_driver.so"), &driver.join("libcuda.so.1"), 0o644)?;
    symlink("libcuda.so.1", driver.join("libcuda.so"))?;
    shell_files(&command, &prefix)?;

    let documents = prefix.join("share/doc/crossdock");
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&work.root.join(file), &documents.join(file), 0o644)?;
    }
    let dependencies = dependencies::of(work, &crates)?;
    write(&documents.join("THIRD-PARTY-NOTICES.txt"), notices::text(work, &dependencies)?)?;
    write(&documents.join("sbom.cdx.json"), sbom::text("crossdock", &dependencies))?;
    for file in files(&prefix)? {
        check(work, &file)?;
    }
    archive::write(work, &stage, &name, &work.out.join(format!("{name}.tar.gz")))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Completions and manual pages, which the command prints itself.
fn shell_files(command: &Path, prefix: &Path) -> Result<()> {
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/crossdock"),
        ("zsh", "share/zsh/site-functions/_crossdock"),
        ("fish", "share/fish/vendor_completions.d/crossdock.fish"),
    ] {
        write(&prefix.join(file), output(Command::new(command).args(["completions", shell]))?)?;
    }
    let pages = prefix.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    run(Command::new(command).arg("man").arg(pages))
}

/// Checks that a program or library needs no newer glibc, and contains no paths of this machine.
pub fn check(work: &Work, file: &Path) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let newest = work.glibc.split_once('.').and_then(|(_, minor)| minor.parse::<u32>().ok());
    let newest =
        newest.with_context(|| format!("--glibc {}: expected a version such as 2.28", work.glibc))?;
    let needed = glibc_minor(&bytes);
    anyhow::ensure!(
        needed <= newest,
        "{} needs glibc 2.{needed}, expected at most 2.{newest}",
        file.display()
    );
    let undefined = output(Command::new("nm").args(["-D", "--undefined-only"]).arg(file))?;
    let missing = without_version(&String::from_utf8_lossy(&undefined));
    anyhow::ensure!(
        missing.is_empty(),
        "{} needs functions that glibc 2.{newest} does not have: {}",
        file.display(),
        missing.join(", ")
    );
    for path in [work.root.display().to_string(), std::env::var("HOME").unwrap_or_default()] {
        let found = path.len() > 1 && bytes.windows(path.len()).any(|window| window == path.as_bytes());
        anyhow::ensure!(!found, "{} contains the path {path} of this machine", file.display());
    }
    Ok(())
}

/// The undefined symbols in the output of nm that have no version of a library. They do not exist
/// in the libraries against which the file was linked. Python's symbols come from the interpreter.
fn without_version(symbols: &str) -> Vec<String> {
    let needed = symbols.lines().filter_map(|line| line.trim().strip_prefix("U "));
    let of_python = |name: &&str| name.starts_with("Py") || name.starts_with("_Py");
    let missing = needed.filter(|name| !name.contains('@') && !of_python(name));
    missing.map(str::to_owned).collect()
}

/// The newest minor version of glibc 2 whose symbols a library names.
fn glibc_minor(bytes: &[u8]) -> u32 {
    const BEGIN: &[u8] = b"GLIBC_2.";
    let mut newest = 0;
    for i in 0..bytes.len().saturating_sub(BEGIN.len()) {
        let Some(rest) = bytes.get(i..).and_then(|bytes| bytes.strip_prefix(BEGIN)) else { continue };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).take(4);
        newest = newest.max(digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0')));
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_no_library_has_are_found() {
        let symbols = "                 U Py_IncRef\n                 U gettid\n                 U malloc@GLIBC_2.2.5\n                 w pidfd_getpid\n";
        assert_eq!(without_version(symbols), ["gettid"]);
    }

    #[test]
    fn newest_glibc_is_found_among_the_versions_of_symbols() {
        assert_eq!(glibc_minor(b"\0GLIBC_2.2.5\0GLIBC_2.28\0GLIBC_2.17\0"), 28);
        assert_eq!(glibc_minor(b"GLIBC_PRIVATE\0GLIBC_2."), 0);
    }
}
