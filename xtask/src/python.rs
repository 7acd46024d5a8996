//! `cargo xtask python`: creates a folder with the Python package, which consists of links to its
//! sources and to the built libraries.

use crate::cargo::{Package, Workspace, cargo, run as run_command};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The folder of the package in the workspace, which is also the name of its crate.
pub const FOLDER: &str = "python";
const PACKAGE: &str = "crossdock";
/// The file name of the extension module, which uses Python's stable ABI.
const MODULE: &str = "_native.abi3.so";
const PLUGINS: &str = "plugins";
/// The folder of the crate of the command, its file, and the folder of the file in the package.
const CLI: &str = "cli";
const COMMAND: &str = "crossdock";
const BIN: &str = "bin";

/// Options of `cargo xtask python`.
#[derive(clap::Args)]
pub struct Options {
    /// Build in the release profile
    #[arg(long)]
    release: bool,
}

/// Builds the package, and prints the folder for PYTHONPATH as the only line on standard output.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut build = cargo();
    build
        .current_dir(&workspace.root)
        .args(["build", "--quiet"])
        .args(options.release.then_some("--release"));
    build.args(packages(workspace).flat_map(|package| ["-p", &package.name]));
    run_command(&mut build)?;
    println!("{}", lay_out(workspace, &workspace.built(options.release))?.display());
    Ok(())
}

/// The crates of the extension module, of the plugins and of the command.
pub fn packages(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    let of = |folder| workspace.packages.iter().filter(move |package| package.folder == folder);
    of(FOLDER).chain(workspace.plugins()).chain(of(CLI))
}

/// Creates a folder next to `built` with links to the libraries in `built`. For `target/debug`, the
/// folder is `target/python`. Returns the folder for PYTHONPATH.
pub fn lay_out(workspace: &Workspace, built: &Path) -> Result<PathBuf> {
    let profile = built.strip_prefix(&workspace.target).unwrap_or(built).to_string_lossy().replace('/', "-");
    let name = if profile == "debug" { FOLDER.to_owned() } else { format!("{FOLDER}-{profile}") };
    let folder = workspace.target.join(name);
    let Some(module) = packages(workspace).next().and_then(|package| package.cdylibs.first()) else {
        bail!("{FOLDER}: no workspace member in this folder builds a library");
    };
    let mut links = Vec::new();
    for entry in list(&workspace.root.join(FOLDER).join(PACKAGE))? {
        if entry.file_name() != Some("__pycache__".as_ref()) {
            links.push((entry.file_name().unwrap_or_default().to_owned(), entry));
        }
    }
    links.push((MODULE.into(), built.join(format!("lib{module}.so"))));
    let plugins = workspace.plugins().flat_map(|plugin| &plugin.cdylibs).map(|name| format!("lib{name}.so"));
    let plugins: Vec<_> = plugins.map(|name| (OsString::from(&name), built.join(name))).collect();
    link_all(&folder.join(PACKAGE).join(PLUGINS), &plugins)?;
    link_all(&folder.join(PACKAGE).join(BIN), &[(COMMAND.into(), built.join(COMMAND))])?;
    link_all(&folder.join(PACKAGE), &links)?;
    Ok(folder)
}

/// The files that the package's tests read.
const LOOKED_AT: [&str; 4] =
    ["docs", "python/README.md", "examples/data/flights-january.arrow", "tests/python"];
/// pytest and its dependencies, which are pure Python. They are packed because a machine with a GPU
/// may have no pytest.
const RUNNER: [&str; 7] = ["_pytest", "pytest", "py.py", "pluggy", "iniconfig", "packaging", "pygments"];

/// Copies into the folder `to`: the package, its tests, the files that the tests read, and the
/// environment's pytest, if there is one. Creates links to the libraries in `to/release`.
pub fn carry(workspace: &Workspace, to: &Path) -> Result<()> {
    let package = to.join(FOLDER).join(PACKAGE);
    copy_all(&workspace.root.join(FOLDER).join(PACKAGE), &package)?;
    fs::create_dir_all(package.join(PLUGINS))?;
    let Some(module) = packages(workspace).next().and_then(|package| package.cdylibs.first()) else {
        bail!("{FOLDER}: no workspace member in this folder builds a library");
    };
    symlink(format!("../../release/lib{module}.so"), package.join(MODULE))?;
    fs::create_dir_all(package.join(BIN))?;
    symlink(format!("../../../release/{COMMAND}"), package.join(BIN).join(COMMAND))?;
    for name in workspace.plugins().flat_map(|plugin| &plugin.cdylibs) {
        let file = format!("lib{name}.so");
        symlink(format!("../../../release/{file}"), package.join(PLUGINS).join(file))?;
    }
    for path in LOOKED_AT {
        copy_all(&workspace.root.join(path), &to.join(path))?;
    }
    let libraries = workspace.target.join("venv/lib");
    let versions = if libraries.exists() { list(&libraries)? } else { Vec::new() };
    for version in versions {
        for name in RUNNER {
            copy_all(&version.join("site-packages").join(name), &to.join("runner").join(name))?;
        }
    }
    Ok(())
}

/// Copies a file, or a folder without the caches that Python writes.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    }
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in list(from)? {
        let name = entry.file_name().unwrap_or_default();
        if name != "__pycache__" {
            copy_all(&entry, &to.join(name))?;
        }
    }
    Ok(())
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Creates, replaces and removes links so that a folder contains exactly these links. Subfolders
/// are kept. Correct links are not changed, because a process may use them.
fn link_all(folder: &Path, links: &[(OsString, PathBuf)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for link in list(folder)?.into_iter().filter(|link| link.is_symlink()) {
        let wanted = links.iter().find(|(name, _)| Some(name.as_os_str()) == link.file_name());
        if wanted.is_none_or(|(_, to)| fs::read_link(&link).ok().as_ref() != Some(to)) {
            fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
        }
    }
    for (name, to) in links {
        let at = folder.join(name);
        if !to.exists() {
            bail!("{} does not exist; build it first", to.display());
        }
        if !at.is_symlink() {
            symlink(to, &at).with_context(|| format!("cannot create the link {}", at.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_all_adds_changes_and_removes_links() {
        let root = std::env::temp_dir().join(format!("crossdock-links-{}", std::process::id()));
        let folder = root.join("links");
        fs::create_dir_all(folder.join("kept")).unwrap();
        let file = |name: &str| {
            fs::write(root.join(name), name).unwrap();
            root.join(name)
        };
        let (a, b) = (file("a"), file("b"));
        link_all(&folder, &[("one".into(), a.clone()), ("two".into(), a.clone())]).unwrap();
        link_all(&folder, &[("two".into(), b.clone()), ("three".into(), a)]).unwrap();
        let mut names: Vec<_> = list(&folder).unwrap();
        names.sort();
        assert_eq!(names, ["kept", "three", "two"].map(|name| folder.join(name)));
        assert_eq!(fs::read_link(folder.join("two")).unwrap(), b);
        assert!(link_all(&folder, &[("x".into(), root.join("missing"))]).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn carry_copies_the_package_and_its_tests_and_links_the_libraries() {
        let to = std::env::temp_dir().join(format!("crossdock-carried-{}", std::process::id()));
        let workspace = Workspace::load().unwrap();
        carry(&workspace, &to).unwrap();
        for file in ["python/crossdock/__init__.py", "tests/python/package/conftest.py", "docs/start.md"] {
            assert!(to.join(file).is_file(), "{file}");
        }
        let module = fs::read_link(to.join("python/crossdock").join(MODULE)).unwrap();
        assert_eq!(module, Path::new("../../release/libcrossdock_native.so"));
        let plugins = list(&to.join("python/crossdock/plugins")).unwrap();
        assert_eq!(plugins.len(), workspace.plugins().count());
        assert!(!to.join("tests/python/__pycache__").exists());
        fs::remove_dir_all(to).unwrap();
    }
}
