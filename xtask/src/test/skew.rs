//! Runs plugins of other releases and toolchains in the current host. The step builds whole
//! workspaces. The short tier therefore runs it only if the sources on which the tests depend have
//! changed.

use super::{Outcome, Run};
use crate::cargo::{Package, Workspace};
use crate::fnv::fnv1a;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "tests/skew";
/// The sources on which the tests depend.
const SOURCES: &[&str] = &["plugin-api", "capi", FOLDER];
/// The file with the hash of the sources with which the tests last passed.
const RECORD: &str = "tests/skew/passed.txt";

/// Whether this step, and not the step `rust`, runs the tests of the package.
pub fn is_its(package: &Package) -> bool {
    package.folder == FOLDER
}

/// Runs the tests, and records the hash of the sources if they pass.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let outcome = run.programs(&run.tests_of(is_its)?, &[])?;
    // With a filter, not all tests ran, so the hash is not recorded.
    if matches!(outcome, Outcome::Passed(_)) && run.filter.is_none() && !is_recorded(run.workspace)? {
        let path = run.workspace.root.join(RECORD);
        let text = format!(
            "# Written by `cargo xtask test --only skew`, when it passes.\n{}\n",
            hash(&run.workspace.root)?
        );
        fs::write(&path, text).with_context(|| format!("cannot write {RECORD}"))?;
    }
    Ok(outcome)
}

/// Whether the tests have passed with the current sources.
pub fn is_recorded(workspace: &Workspace) -> Result<bool> {
    let record = fs::read_to_string(workspace.root.join(RECORD)).unwrap_or_default();
    let recorded = record.lines().find(|line| !line.starts_with('#'));
    Ok(recorded == Some(hash(&workspace.root)?.as_str()))
}

/// The reason why the short tier skips the step.
pub fn unchanged() -> String {
    format!("{} have not changed since it passed ({RECORD})", SOURCES.join(", "))
}

fn hash(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    SOURCES.iter().try_for_each(|folder| collect(&root.join(folder), &mut files))?;
    files.sort();
    let mut all = Vec::new();
    for path in files.iter().filter(|path| **path != root.join(RECORD)) {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        all.extend(name.into_bytes());
        all.extend(fs::read(path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(format!("{:016x}", fnv1a(&all)))
}

/// Collects the files of a folder without build outputs.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some("target" | "Cargo.lock" | "__pycache__") => {}
            _ if path.is_dir() => collect(&path, files)?,
            _ => files.push(path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_sources_but_not_on_the_recorded_hash() {
        let root = std::env::temp_dir().join(format!("crossdock-skew-{}", std::process::id()));
        for folder in SOURCES {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        write("plugin-api/a.h", "1");
        let before = hash(&root).unwrap();
        write(RECORD, &before);
        assert_eq!(hash(&root).unwrap(), before);
        write("plugin-api/a.h", "2");
        assert_ne!(hash(&root).unwrap(), before);
        write("plugin-api/a.h", "1");
        assert_eq!(hash(&root).unwrap(), before);
        write("capi/b.h", "");
        assert_ne!(hash(&root).unwrap(), before);
        fs::remove_dir_all(root).unwrap();
    }
}
