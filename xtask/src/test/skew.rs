//! Plugins of other releases and toolchains under this host: whole workspaces are built for it, so that the short tier does it
//! only where what the releases share has changed.

use super::{Outcome, Run};
use crate::cargo::{Package, Workspace};
use crate::fnv::fnv1a;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "tests/skew";
/// What the releases share, and what is built of them.
const SOURCES: &[&str] = &["plugin-api", "capi", FOLDER];
/// The hash of the sources that the tests last passed with.
const RECORD: &str = "tests/skew/passed.txt";

/// Whether the tests of this package are this step's.
pub fn is_its(package: &Package) -> bool {
    package.folder == FOLDER
}

/// Runs the tests, and records the sources that they passed with.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let outcome = run.programs(&run.tests_of(is_its)?, &[])?;
    // With a filter they did not all run.
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

/// Whether the tests have passed with today's sources.
pub fn is_recorded(workspace: &Workspace) -> Result<bool> {
    let record = fs::read_to_string(workspace.root.join(RECORD)).unwrap_or_default();
    let recorded = record.lines().find(|line| !line.starts_with('#'));
    Ok(recorded == Some(hash(&workspace.root)?.as_str()))
}

/// Why the short tier leaves the step out.
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

/// The files of a folder, but for what was built in it.
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
    fn a_changed_source_changes_the_hash_and_the_record_does_not() {
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
