//! `cargo xtask tidy`: the rules of the house that no linter knows. Each rule is a function from what it looks at to
//! a list of complaints, so that its tests can hand it a house that breaks it.

mod arrows;
mod cycles;
mod manifests;
mod papers;
mod text;
mod texts;
mod versions;

use crate::cargo::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use text::Text;

/// Prints every complaint; an error if there is one.
pub fn run(workspace: &Workspace) -> Result<()> {
    let complaints = complaints(workspace)?;
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("the house is not tidy: {} complaints", complaints.len());
    }
    println!("the house is tidy: {} crates", workspace.packages.len());
    Ok(())
}

fn complaints(workspace: &Workspace) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    collect(&workspace.root, &workspace.root, &mut texts)?;
    let mut all = arrows::check(&workspace.packages);
    all.extend(cycles::check(&workspace.packages, &texts));
    all.extend(manifests::check(&workspace.packages, &texts));
    all.extend(texts::check(&texts));
    all.extend(papers::check(&texts));
    all.extend(versions::check(&texts));
    all.extend(crate::kernels::check_record(&workspace.root));
    Ok(all)
}

/// Folders that hold nothing of ours, wherever they are.
const NOT_OURS: &[&str] = &[".git", "target", "dist", ".venv", "__pycache__", ".pytest_cache"];

const ENDINGS: &[&str] = &[
    "rs", "toml", "md", "h", "hpp", "c", "cpp", "cu", "cuh", "py", "pyi", "sh", "txt", "yml", "yaml", "json",
];

/// Walks the folders itself, since a machine that runs the tests need not have git.
fn collect(root: &Path, folder: &Path, texts: &mut Vec<Text>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, texts)?;
            continue;
        }
        let ending = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        if !ENDINGS.contains(&ending.as_str()) && name != "run" {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        texts.push(Text { path: relative, content: String::from_utf8_lossy(&bytes).into_owned() });
    }
    Ok(())
}
