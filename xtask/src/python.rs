//! `cargo xtask python`: the Python package as `import` finds it, made of links to its sources and to what was built.

use crate::cargo::{Package, Workspace, cargo, run as run_command};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The package's folder in the workspace, and what it is called.
pub const FOLDER: &str = "python";
const PACKAGE: &str = "crossdock";
/// The module as Python looks for one that keeps to the stable ABI.
const MODULE: &str = "_native.abi3.so";
const PLUGINS: &str = "plugins";

/// What `cargo xtask python` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Build in the release profile
    #[arg(long)]
    release: bool,
}

/// Builds, and prints the folder for PYTHONPATH and nothing else on stdout.
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

/// The module's crate and the plugins'.
pub fn packages(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    let module = workspace.packages.iter().filter(|package| package.folder == FOLDER);
    module.chain(workspace.plugins())
}

/// Links of what lies in `built`, in a folder beside it: `target/python` of `target/debug`. Gives the folder for PYTHONPATH.
pub fn lay_out(workspace: &Workspace, built: &Path) -> Result<PathBuf> {
    let profile = built.strip_prefix(&workspace.target).unwrap_or(built).to_string_lossy().replace('/', "-");
    let name = if profile == "debug" { FOLDER.to_owned() } else { format!("{FOLDER}-{profile}") };
    let folder = workspace.target.join(name);
    let Some(module) = packages(workspace).next().and_then(|package| package.cdylibs.first()) else {
        bail!("{FOLDER}: no member of the workspace that makes a library");
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
    link_all(&folder.join(PACKAGE), &links)?;
    Ok(folder)
}

/// What the package's tests look at beside themselves.
const LOOKED_AT: [&str; 4] =
    ["README.md", "docs/recipes.md", "examples/data/flights-january.arrow", "tests/python"];
/// pytest and what it needs, which are Python alone: a machine with a GPU may have none.
const RUNNER: [&str; 7] = ["_pytest", "pytest", "py.py", "pluggy", "iniconfig", "packaging", "pygments"];

/// Puts the package into a folder that has what was built in `release`, by links; with its tests, what they look at, and a
/// pytest of the environment where that is there.
pub fn carry(workspace: &Workspace, to: &Path) -> Result<()> {
    let package = to.join(FOLDER).join(PACKAGE);
    copy_all(&workspace.root.join(FOLDER).join(PACKAGE), &package)?;
    fs::create_dir_all(package.join(PLUGINS))?;
    let Some(module) = packages(workspace).next().and_then(|package| package.cdylibs.first()) else {
        bail!("{FOLDER}: no member of the workspace that makes a library");
    };
    symlink(format!("../../release/lib{module}.so"), package.join(MODULE))?;
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

/// A file, or a folder without what Python keeps in it.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    }
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
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

/// Makes a folder hold these links and no others; folders in it stay. What is right already is not touched, for somebody
/// may be using it.
fn link_all(folder: &Path, links: &[(OsString, PathBuf)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for there in list(folder)?.into_iter().filter(|there| there.is_symlink()) {
        let wanted = links.iter().find(|(name, _)| Some(name.as_os_str()) == there.file_name());
        if wanted.is_none_or(|(_, to)| fs::read_link(&there).ok().as_ref() != Some(to)) {
            fs::remove_file(&there).with_context(|| format!("cannot remove {}", there.display()))?;
        }
    }
    for (name, to) in links {
        let at = folder.join(name);
        if !to.exists() {
            bail!("{} is not there: it has to be built first", to.display());
        }
        if !at.is_symlink() {
            symlink(to, &at).with_context(|| format!("cannot make the link {}", at.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_links_follows_what_is_wanted() {
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
    fn what_is_carried_has_the_package_its_tests_and_links_to_what_was_built() {
        let to = std::env::temp_dir().join(format!("crossdock-carried-{}", std::process::id()));
        let workspace = Workspace::load().unwrap();
        carry(&workspace, &to).unwrap();
        for file in ["python/crossdock/__init__.py", "tests/python/package/conftest.py", "README.md"] {
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
