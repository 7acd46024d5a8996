//! Files that one can read in one sitting, without words that belong elsewhere.

use super::text::Text;

const MAX_LINES: usize = 600;

/// Longer by their nature: each is one thing that readers want whole.
const MAY_BE_LONG: &[&str] = &[
    "plugin-api/include/crossdock.h",
    "plugin-api/abi/layout.txt",
    "CHANGELOG.md",
    "docs/benchmarks.md",
    "docs/plugins.md",
];

/// Headers and layouts as they were released.
const ON_RECORD: &str = "plugin-api/abi/released/";

const ADDRESS: &str = "the project's address belongs into docs/address.md alone";

/// What was left behind, or speaks of somebody's machine. Spelled in parts, so that this file does not hold them.
const FOREIGN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/tmp/", "brief"), "a path of one machine"),
    (concat!("this ses", "sion"), "say `the session` of the product, or nothing"),
    (concat!("TO", "DO"), "an unfinished thought"),
    (concat!("FIX", "ME"), "an unfinished thought"),
    (concat!("to", "do!("), "an unfinished function"),
    (concat!("unimple", "mented!("), "an unfinished function"),
    (concat!("dbg", "!("), "a leftover of debugging"),
    (concat!("github.com/cross", "dock"), ADDRESS),
    (concat!("repository", ".workspace"), ADDRESS),
    (concat!("repository", " = "), ADDRESS),
    (concat!("homepage", " = "), ADDRESS),
    (concat!("Repository", " = "), ADDRESS),
];

/// A complaint for every file that is too long, and every line with a foreign word.
pub fn check(texts: &[Text]) -> Vec<String> {
    let mut complaints = Vec::new();
    for text in texts {
        let lines = text.content.lines().count();
        let may_be_long = MAY_BE_LONG.contains(&text.path.as_str()) || text.path.starts_with(ON_RECORD);
        if lines > MAX_LINES && !may_be_long {
            complaints.push(format!(
                "{}: {lines} lines; the house reads at most {MAX_LINES} in one file",
                text.path
            ));
        }
        for (number, line) in text.content.lines().enumerate() {
            for (word, why) in FOREIGN.iter().filter(|(word, _)| line.contains(word)) {
                complaints.push(format!("{}:{}: `{word}`: {why}", text.path, number + 1));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    #[test]
    fn a_file_of_601_lines_is_too_long_and_one_of_600_is_not() {
        assert_eq!(check(&[text("a.rs", &"x\n".repeat(600))]), Vec::<String>::new());
        let found = check(&[text("a.rs", &"x\n".repeat(601))]);
        assert_eq!(found, ["a.rs: 601 lines; the house reads at most 600 in one file"]);
    }

    #[test]
    fn the_contract_may_be_long() {
        for path in ["plugin-api/include/crossdock.h", "plugin-api/abi/released/0.1/crossdock.h"] {
            assert_eq!(check(&[text(path, &"x\n".repeat(700))]), Vec::<String>::new());
        }
    }

    #[test]
    fn a_foreign_word_is_named_with_its_line() {
        for (word, why) in FOREIGN {
            let found = check(&[text("a.rs", &format!("fine\nsee {word}x\n"))]);
            assert_eq!(found, [format!("a.rs:2: `{word}`: {why}")]);
        }
    }
}
