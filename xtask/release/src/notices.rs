//! The notices of the authors of crates, which must accompany programs that contain the crates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::dependencies::Dependency;
use crate::work::{Work, output};

const INTRODUCTION: &str =
    "Crossdock contains the following crates of other authors. Their licences follow.\n";

/// The text of all notices: the list of crates, then each licence with the crates to which it
/// applies.
pub fn text(work: &Work, dependencies: &[Dependency]) -> Result<String> {
    let apache = std::fs::read_to_string(work.root.join("LICENSE")).context("LICENSE")?;
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for dependency in dependencies {
        let label = format!("{} {}", dependency.name, dependency.version);
        for text in licences(dependency, &apache)? {
            by_text.entry(text).or_default().push(label.clone());
        }
    }
    by_text.entry(standard_library()?).or_default().push("the standard library of Rust".to_owned());
    let mut notices = INTRODUCTION.to_owned();
    for Dependency { name, version, licence, authors, .. } in dependencies {
        let authors = if authors.is_empty() { String::new() } else { format!(", by {}", authors.join(", ")) };
        writeln!(notices, "  {name} {version} ({licence}){authors}")?;
    }
    for (text, crates) in by_text {
        let line = "-".repeat(80);
        writeln!(notices, "\n{line}\n{}:\n\n{}", crates.join(", "), text.trim())?;
    }
    Ok(notices)
}

/// The licence and notice files of a crate.
fn licences(dependency: &Dependency, apache: &str) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let entries = std::fs::read_dir(&dependency.folder);
    let entries = entries.with_context(|| format!("cannot read {}", dependency.folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|path| is_notice(path) && path.is_file()) {
        texts.push(std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    match dependency.licence.as_str() {
        _ if !texts.is_empty() => {}
        // This licence has the same text for all authors.
        "Apache-2.0" => texts.push(apache.to_owned()),
        other => bail!(
            "the package of {} {} has no file with its licence ({other}): add the text to its notices by hand",
            dependency.name,
            dependency.version
        ),
    }
    Ok(texts)
}

fn is_notice(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    ["license", "licence", "copying", "notice", "copyright", "unlicense"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// The licence of Rust's standard library.
fn standard_library() -> Result<String> {
    let root = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let folder = Path::new(String::from_utf8(root)?.trim()).join("share/doc/rust/licenses");
    let path = folder.join("MIT.txt");
    std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}, which is a part of Rust's documentation", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(folder: &Path, licence: &str) -> Dependency {
        Dependency {
            name: "a".into(),
            version: "1.0.0".into(),
            licence: licence.into(),
            authors: Vec::new(),
            sha256: None,
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn notices_are_the_files_of_the_crate_or_the_known_text() {
        let folder = tempfile::tempdir().unwrap();
        let crate_of = |licence| dependency(folder.path(), licence);
        assert_eq!(licences(&crate_of("Apache-2.0"), "text").unwrap(), ["text"]);
        let error = licences(&crate_of("MIT"), "text").unwrap_err().to_string();
        assert!(error.contains("a 1.0.0") && error.contains("MIT"), "{error}");
        for (file, content) in
            [("LICENSE-MIT", "m"), ("NOTICE", "n"), ("README.md", "r"), ("Licence.txt", "l")]
        {
            std::fs::write(folder.path().join(file), content).unwrap();
        }
        assert_eq!(licences(&crate_of("MIT"), "text").unwrap(), ["m", "l", "n"]);
    }
}
