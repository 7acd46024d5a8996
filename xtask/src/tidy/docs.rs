//! Checks documents: decisions must be numbered without gaps, and the README must show two
//! commands.

use super::text::Text;

const COMMANDS: [&str; 2] = ["cargo xtask demo", "cargo xtask test"];

/// Returns a violation for each gap and each missing command.
pub fn check(texts: &[Text]) -> Vec<String> {
    let mut violations = decisions(texts);
    let readme = texts.iter().find(|t| t.path == "README.md").map(|t| t.content.as_str());
    for command in COMMANDS {
        if !readme.unwrap_or_default().contains(command) {
            violations.push(format!("README.md: does not show `{command}`"));
        }
    }
    violations
}

/// Checks that the decisions are named `docs/decisions/NNNN-title.md` and numbered from 0001.
fn decisions(texts: &[Text]) -> Vec<String> {
    let names =
        texts.iter().filter_map(|t| t.path.strip_prefix("docs/decisions/")).filter(|n| *n != "README.md");
    let mut violations = Vec::new();
    let mut numbers = Vec::new();
    for name in names {
        match name
            .split_once('-')
            .filter(|(digits, _)| digits.len() == 4)
            .and_then(|(d, _)| d.parse::<u32>().ok())
        {
            Some(number) => numbers.push(number),
            None => violations.push(format!("docs/decisions/{name}: expected the name NNNN-title.md")),
        }
    }
    numbers.sort_unstable();
    for (expected, number) in (1u32..).zip(&numbers) {
        if expected != *number {
            let what = if *number < expected { "exists twice" } else { "follows a gap" };
            violations.push(format!("docs/decisions: {number:04} {what}, expected {expected:04}"));
            break;
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    fn with_decisions(names: &[&str]) -> Vec<String> {
        let mut texts: Vec<Text> = names.iter().map(|n| text(&format!("docs/decisions/{n}"), "")).collect();
        texts.push(text("README.md", "cargo xtask demo\ncargo xtask test\n"));
        check(&texts)
    }

    #[test]
    fn accepts_decision_records_with_consecutive_numbers() {
        assert_eq!(with_decisions(&["0001-a.md", "0002-b.md"]), Vec::<String>::new());
    }

    #[test]
    fn rejects_gaps_duplicates_and_wrong_names_of_decision_records() {
        let gap = with_decisions(&["0001-a.md", "0003-c.md"]);
        assert_eq!(gap, ["docs/decisions: 0003 follows a gap, expected 0002"]);
        let double = with_decisions(&["0001-a.md", "0001-b.md"]);
        assert_eq!(double, ["docs/decisions: 0001 exists twice, expected 0002"]);
        assert_eq!(
            with_decisions(&["notes.md"]),
            ["docs/decisions/notes.md: expected the name NNNN-title.md"]
        );
    }

    #[test]
    fn rejects_readme_that_does_not_show_the_test_command() {
        let violations = check(&[text("README.md", "cargo xtask demo")]);
        assert_eq!(violations, ["README.md: does not show `cargo xtask test`"]);
        assert_eq!(check(&[]).len(), 2);
    }
}
