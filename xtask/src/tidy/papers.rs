//! The documents: decisions are numbered without gaps, the README holds the two commands.

use super::text::Text;

const COMMANDS: [&str; 2] = ["cargo xtask demo", "cargo xtask test"];

/// A complaint for every gap and every missing line.
pub fn check(texts: &[Text]) -> Vec<String> {
    let mut complaints = decisions(texts);
    let readme = texts.iter().find(|t| t.path == "README.md").map(|t| t.content.as_str());
    for command in COMMANDS {
        if !readme.unwrap_or_default().contains(command) {
            complaints.push(format!("README.md: does not show `{command}`"));
        }
    }
    complaints
}

/// `docs/decisions/NNNN-title.md`, from 0001 on.
fn decisions(texts: &[Text]) -> Vec<String> {
    let names =
        texts.iter().filter_map(|t| t.path.strip_prefix("docs/decisions/")).filter(|n| *n != "README.md");
    let mut complaints = Vec::new();
    let mut numbers = Vec::new();
    for name in names {
        match name
            .split_once('-')
            .filter(|(digits, _)| digits.len() == 4)
            .and_then(|(d, _)| d.parse::<u32>().ok())
        {
            Some(number) => numbers.push(number),
            None => complaints.push(format!("docs/decisions/{name}: is not called NNNN-title.md")),
        }
    }
    numbers.sort_unstable();
    for (expected, number) in (1u32..).zip(&numbers) {
        if expected != *number {
            let what = if *number < expected { "is there twice" } else { "follows a gap" };
            complaints.push(format!("docs/decisions: {number:04} {what}, expected {expected:04}"));
            break;
        }
    }
    complaints
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
    fn decisions_in_a_row_draw_no_complaint() {
        assert_eq!(with_decisions(&["0001-a.md", "0002-b.md"]), Vec::<String>::new());
    }

    #[test]
    fn a_gap_a_double_and_a_wrong_name_are_each_named() {
        let gap = with_decisions(&["0001-a.md", "0003-c.md"]);
        assert_eq!(gap, ["docs/decisions: 0003 follows a gap, expected 0002"]);
        let double = with_decisions(&["0001-a.md", "0001-b.md"]);
        assert_eq!(double, ["docs/decisions: 0001 is there twice, expected 0002"]);
        assert_eq!(with_decisions(&["notes.md"]), ["docs/decisions/notes.md: is not called NNNN-title.md"]);
    }

    #[test]
    fn a_readme_without_a_command_is_named() {
        let found = check(&[text("README.md", "cargo xtask demo")]);
        assert_eq!(found, ["README.md: does not show `cargo xtask test`"]);
        assert_eq!(check(&[]).len(), 2);
    }
}
