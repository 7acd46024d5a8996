//! Checks that all versions in the repository equal the version of the workspace.

use super::text::Text;

/// Returns a violation for each version that differs from the version of the workspace.
pub fn check(texts: &[Text]) -> Vec<String> {
    let content = |path: &str| texts.iter().find(|t| t.path == path).map_or("", |t| t.content.as_str());
    let Some(version) = workspace_version(content("Cargo.toml")) else {
        return vec!["Cargo.toml: has no version in [workspace.package]".to_owned()];
    };
    let mut violations = Vec::new();
    match newest(content("CHANGELOG.md")) {
        Some(newest) if newest == version => {}
        newest => violations.push(format!(
            "CHANGELOG.md: its newest version is {}, expected the workspace's {version}",
            newest.unwrap_or("missing")
        )),
    }
    let repeated = content("Cargo.toml").lines().filter(|line| line.contains("{ path = "));
    for line in repeated.filter(|line| line.contains("version = ")) {
        if !line.contains(&format!("version = \"{version}\"")) {
            violations.push(format!("Cargo.toml: `{line}`: expected version {version}, the workspace's"));
        }
    }
    violations
}

fn workspace_version(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[workspace.package]")?;
    let line = package.lines().skip(1).take_while(|line| !line.starts_with('['));
    line.filter_map(|line| line.strip_prefix("version = ")).next().map(|version| version.trim_matches('"'))
}

/// The first heading that is a version: `## [0.1.0] - 2026-01-31`.
fn newest(changelog: &str) -> Option<&str> {
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## [")?.split_once(']'));
    headings.map(|(version, _)| version).find(|version| *version != "Unreleased")
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nversion = \"0.2.0\"\n\n[workspace.dependencies]\n";

    fn check_both(manifest: &str, changelog: &str) -> Vec<String> {
        check(&[text("Cargo.toml", manifest), text("CHANGELOG.md", changelog)])
    }

    #[test]
    fn accepts_a_changelog_of_the_workspace_version() {
        let changelog =
            "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-01-31\n\n## [0.1.0] - 2026-01-01\n";
        assert_eq!(check_both(MANIFEST, changelog), Vec::<String>::new());
    }

    #[test]
    fn rejects_a_changelog_of_another_version() {
        let expected = "CHANGELOG.md: its newest version is 0.1.0, expected the workspace's 0.2.0";
        assert_eq!(check_both(MANIFEST, "## [0.1.0] - 2026-01-01\n"), [expected]);
        assert!(check_both(MANIFEST, "")[0].contains("missing"));
        assert!(check_both("[workspace]\n", "")[0].contains("has no version"));
    }

    #[test]
    fn rejects_a_workspace_dependency_of_another_version() {
        let line = "ours = { path = \"ours\", version = \"0.1.0\" }";
        let violations = check_both(&format!("{MANIFEST}{line}\n"), "## [0.2.0]\n");
        assert_eq!(violations, [format!("Cargo.toml: `{line}`: expected version 0.2.0, the workspace's")]);
    }
}
