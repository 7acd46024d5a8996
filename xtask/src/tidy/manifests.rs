//! Checks that every crate uses the workspace's lints.

use super::text::Text;
use crate::cargo::Package;

/// Returns a violation for each crate without `[lints] workspace = true`.
pub fn check(packages: &[Package], texts: &[Text]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages {
        let path = format!("{}/Cargo.toml", package.folder);
        let manifest = texts.iter().find(|t| t.path == path);
        if !manifest.is_some_and(|m| takes_the_lints(&m.content)) {
            violations.push(format!("{path}: has no `[lints] workspace = true`"));
        }
    }
    violations
}

fn takes_the_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines.by_ref().take_while(|line| !line.starts_with('[')).any(|line| line == "workspace = true")
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    fn check_one(manifest: &str) -> Vec<String> {
        let package = Package { name: "a".to_owned(), folder: "a".to_owned(), ..Package::default() };
        check(&[package], &[text("a/Cargo.toml", manifest)])
    }

    #[test]
    fn rejects_a_manifest_without_the_workspace_lints() {
        assert_eq!(check_one("[package]\n\n[lints]\nworkspace = true\n"), Vec::<String>::new());
        assert_eq!(check_one("[package]\n"), ["a/Cargo.toml: has no `[lints] workspace = true`"]);
        assert_eq!(check_one("[lints]\n[dependencies]\nworkspace = true\n").len(), 1);
        assert_eq!(check_one("[lints]\nworkspace = false\n").len(), 1);
    }
}
