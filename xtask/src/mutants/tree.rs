//! The copy of the sources into which mutants are injected. The working tree is never changed.

use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Updates `copy` so that it has the files of `root`, without files that git ignores. Does not
/// write unchanged files, so that Cargo does not build them again.
pub fn bring_up_to_date(root: &Path, copy: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("git ls-files: a name that is not UTF-8")?;
    // Skips deleted files, which git lists until the deletion is committed.
    let files: HashSet<PathBuf> = names
        .split('\0')
        .filter(|name| !name.is_empty() && root.join(name).is_file())
        .map(Into::into)
        .collect();
    fs::create_dir_all(copy).with_context(|| format!("cannot create {}", copy.display()))?;
    remove_others(copy, copy, &files)?;
    files.iter().try_for_each(|file| bring(&root.join(file), &copy.join(file)))
}

fn bring(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    // `copy` also copies the permissions, since tests run some of the files.
    fs::copy(from, to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(())
}

fn remove_others(folder: &Path, copy: &Path, files: &HashSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(&path, copy, files)?;
        } else if path.strip_prefix(copy).is_ok_and(|file| !files.contains(file)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_only_changed_files_and_removes_deleted_files() {
        let folder = std::env::temp_dir().join(format!("crossdock-mutants-{}", std::process::id()));
        let (root, copy) = (folder.join("root"), folder.join("copy"));
        fs::create_dir_all(root.join("src")).unwrap();
        assert!(Command::new("git").arg("init").arg("--quiet").arg(&root).status().unwrap().success());
        fs::write(root.join(".gitignore"), "/target\n").unwrap();
        fs::write(root.join("target"), "built").unwrap();
        for name in ["src/a.rs", "src/b.rs", "c"] {
            fs::write(root.join(name), name).unwrap();
        }
        bring_up_to_date(&root, &copy).unwrap();
        let written = |name: &str| fs::metadata(copy.join(name)).unwrap().modified().unwrap();
        let before = (written("src/a.rs"), written("src/b.rs"));

        // Simulates an interrupted test of a mutant, which leaves a changed file.
        fs::write(copy.join("src/b.rs"), "mutated").unwrap();
        fs::remove_file(root.join("c")).unwrap();
        bring_up_to_date(&root, &copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("src/b.rs")).unwrap(), "src/b.rs");
        assert_eq!(written("src/a.rs"), before.0);
        assert!(written("src/b.rs") > before.1);
        assert!(!copy.join("c").exists() && !copy.join("target").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
