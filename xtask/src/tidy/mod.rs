//! `cargo xtask tidy`: checks the rules of the project that no linter checks. Each rule is a
//! function that returns a list of violations for its inputs, so that tests can call it with inputs
//! that break the rule.

mod contents;
mod cycles;
mod docs;
mod language;
mod layering;
mod manifests;
mod text;
mod versions;

use crate::cargo::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use text::Text;

/// Prints all violations.
///
/// # Errors
/// Returns an error if there is a violation.
pub fn run(workspace: &Workspace) -> Result<()> {
    let violations = violations(workspace)?;
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy: {} violations", violations.len());
    }
    println!("tidy: {} crates without violations", workspace.packages.len());
    Ok(())
}

fn violations(workspace: &Workspace) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    collect(&workspace.root, &workspace.root, &mut texts)?;
    let mut all = layering::check(&workspace.packages);
    all.extend(cycles::check(&workspace.packages, &texts));
    all.extend(manifests::check(&workspace.packages, &texts));
    all.extend(contents::check(&texts));
    all.extend(docs::check(&texts));
    all.extend(language::check_all(&workspace.root, &texts)?);
    all.extend(versions::check(&texts));
    all.extend(crate::kernels::check_record(&workspace.root));
    Ok(all)
}

/// Names of folders that are skipped at any depth, because they contain no sources.
const IGNORED_FOLDERS: &[&str] = &[".git", "target", "dist", ".venv", "__pycache__", ".pytest_cache"];

const EXTENSIONS: &[&str] = &[
    "rs", "toml", "md", "h", "hpp", "c", "cpp", "cu", "cuh", "py", "pyi", "sh", "txt", "yml", "yaml", "json",
];

/// Collects the text files. Does not use git, because the tests may run on a machine without git.
fn collect(root: &Path, folder: &Path, texts: &mut Vec<Text>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || IGNORED_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, texts)?;
            continue;
        }
        let extension = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        if !EXTENSIONS.contains(&extension.as_str()) && name != "run" {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        texts.push(Text { path: relative, content: String::from_utf8_lossy(&bytes).into_owned() });
    }
    Ok(())
}
