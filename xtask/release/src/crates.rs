//! Packages the crates. Cargo builds each crate from its package, with the packages of the others.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::toolchain::cargo_home;
use crate::work::{Work, cargo, output, run};

/// The names of the crates that are published.
fn published(work: &Work) -> Result<Vec<String>> {
    let mut metadata = cargo();
    metadata.current_dir(&work.root).args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&output(&mut metadata)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let published = packages.iter().filter(|package| package["publish"].is_null());
    published.map(|package| Ok(package["name"].as_str().context("a name")?.to_owned())).collect()
}

pub fn package(work: &Work) -> Result<()> {
    let names = published(work)?;
    compare(work, &names)?;
    let target = work.target().join("crates");
    forget_packages(&target, &names)?;
    let mut package = cargo();
    package.current_dir(&work.root).args(["package", "--locked", "--target-dir"]).arg(&target);
    package.args(names.iter().flat_map(|name| ["-p", name]));
    run(&mut package)?;
    let out = work.out.join("crates");
    fs::create_dir_all(&out)?;
    for name in &names {
        let file = format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        let built = target.join("package").join(&file);
        check(&built, name)?;
        fs::copy(&built, out.join(&file)).with_context(|| format!("cannot copy {}", built.display()))?;
    }
    eprintln!("crates: {} packages", names.len());
    Ok(())
}

/// Removes what Cargo unpacked and built when it packaged this version before. Cargo would build
/// crates with the earlier packages of the other crates, because it takes a package of a registry
/// as unchanged.
fn forget_packages(target: &Path, names: &[String]) -> Result<()> {
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| format!("cannot remove {}", target.display()))?;
    }
    let unpacked = Path::new(&cargo_home()?).join("registry/src");
    let Ok(registries) = fs::read_dir(unpacked) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // The registry of the packages has no host, so the name of its folder is only a hash.
        if !registry.file_name().to_string_lossy().starts_with('-') {
            continue;
        }
        for name in names {
            let path = registry.path().join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
            if path.exists() {
                fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Compares the interfaces of the crates with those of the previous release. A break needs a new
/// minor version while the major version is 0.
fn compare(work: &Work, names: &[String]) -> Result<()> {
    let current = format!("v{}", env!("CARGO_PKG_VERSION"));
    let mut tags = Command::new("git");
    tags.current_dir(&work.root).args(["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"]);
    let tags = String::from_utf8(output(&mut tags)?)?;
    let Some(previous) = tags.lines().find(|tag| *tag != current) else {
        eprintln!("crates: there is no earlier release whose interfaces could be compared");
        return Ok(());
    };
    let mut check = cargo();
    check.current_dir(&work.root).arg("semver-checks");
    if output(check.arg("--version")).is_err() {
        bail!("cargo-semver-checks is not installed: cargo install --locked cargo-semver-checks");
    }
    let mut check = cargo();
    check.current_dir(&work.root).args(["semver-checks", "--baseline-rev", previous]);
    run(check.args(names.iter().flat_map(|name| ["-p", name])))
}

/// Checks that a package contains the licence and the readme.
fn check(package: &Path, name: &str) -> Result<()> {
    let list = output(Command::new("tar").arg("tzf").arg(package))?;
    let list = String::from_utf8_lossy(&list).into_owned();
    for file in ["LICENSE", "README.md", "Cargo.toml"] {
        if !list.lines().any(|line| line.split_once('/').is_some_and(|(_, path)| path == file)) {
            bail!("the package of {name} has no {file}");
        }
    }
    Ok(())
}
