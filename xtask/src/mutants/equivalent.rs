//! Mutants that no test can find, with reasons.

use super::list::List;
use anyhow::{Context, Result, bail};
use std::path::Path;

const FILE: &str = "tests/mutants/equivalent.txt";

/// Pairs of a mutant's name and the reason.
#[derive(Debug, Default)]
pub struct Equivalent {
    reasons: Vec<(String, String)>,
}

impl Equivalent {
    pub fn load(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        Self::read(&text)
    }

    /// Parses the file. Each entry is a line with a name and an indented line with the reason.
    /// Lines that begin with # are comments.
    fn read(text: &str) -> Result<Self> {
        let mut reasons: Vec<(String, String)> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            match (line.strip_prefix("    "), reasons.last_mut()) {
                (Some(reason), Some((_, reasons))) if reasons.is_empty() => {
                    *reasons = reason.trim().to_owned()
                }
                (Some(reason), _) => bail!("{FILE}: expected a name, got '{}'", reason.trim()),
                (None, Some((name, reason))) if reason.is_empty() => bail!("{FILE}: no reason for '{name}'"),
                (None, _) => reasons.push((line.to_owned(), String::new())),
            }
        }
        match reasons.last() {
            Some((name, reason)) if reason.is_empty() => bail!("{FILE}: no reason for '{name}'"),
            _ => Ok(Self { reasons }),
        }
    }

    /// Returns an error if a name is not the name of an existing mutant.
    pub fn check(&self, list: &List) -> Result<()> {
        match self.reasons.iter().find(|(name, _)| !list.has(name)) {
            Some((name, _)) => bail!("{FILE}: there is no mutant '{name}'"),
            None => Ok(()),
        }
    }

    /// The reason why no test can find this mutant, if one is recorded.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.iter().find(|(known, _)| known == name).map(|(_, reason)| reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_and_reasons() {
        let read = Equivalent::read("# Why\n\na/x.rs: replace f with ()\n    f does nothing\nb: c\n    d\n")
            .unwrap();
        assert_eq!(read.reason("a/x.rs: replace f with ()"), Some("f does nothing"));
        assert_eq!(read.reason("b: c"), Some("d"));
        assert_eq!(read.reason("# Why"), None);
    }

    #[test]
    fn rejects_names_without_reasons_and_reasons_without_names() {
        for (text, expected) in [
            ("a\nb\n    c\n", "no reason for 'a'"),
            ("a\n", "no reason for 'a'"),
            ("    c\n", "expected a name, got 'c'"),
            ("a\n    b\n    c\n", "expected a name, got 'c'"),
        ] {
            let error = Equivalent::read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn rejects_names_of_unknown_mutants() {
        let listed = r#"[{"package": "a", "file": "a/x.rs", "name": "a/x.rs:1:2: replace f with ()"}]"#;
        let list = List::read(listed.as_bytes()).unwrap();
        let check = |text| Equivalent::read(text).unwrap().check(&list);
        check("a/x.rs: replace f with ()\n    f does nothing\n").unwrap();
        let error = check("a/x.rs: replace g with ()\n    g does nothing\n").unwrap_err();
        assert!(error.to_string().contains("there is no mutant 'a/x.rs: replace g with ()'"), "{error}");
    }
}
