//! Checks the contents of files: their length, and forbidden words.

use super::text::Text;

const MAX_LINES: usize = 600;

/// Files that may be longer, because readers need them as one file.
const MAY_BE_LONG: &[&str] = &[
    "plugin-api/include/crossdock.h",
    "capi/include/crossdock-host.h",
    "plugin-api/abi/layout.txt",
    "CHANGELOG.md",
    "docs/benchmarks.md",
    "docs/plugins.md",
];

/// The folder of released headers and layouts.
const RELEASED: &str = "plugin-api/abi/released/";

const ADDRESS: &str = "the project's address may only be in docs/address.md";

/// Forbidden words and the reasons. The words are concatenated from parts, so that this file does
/// not contain a forbidden word.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/tmp/", "brief"), "a path of one machine"),
    (concat!("this ses", "sion"), "write `the session` for a session of the product"),
    (concat!("TO", "DO"), "unfinished"),
    (concat!("FIX", "ME"), "unfinished"),
    (concat!("to", "do!("), "an unfinished function"),
    (concat!("unimple", "mented!("), "an unfinished function"),
    (concat!("dbg", "!("), "a leftover of debugging"),
    (concat!("github.com/cross", "dock"), ADDRESS),
    (concat!("repository", ".workspace"), ADDRESS),
    (concat!("repository", " = "), ADDRESS),
    (concat!("homepage", " = "), ADDRESS),
    (concat!("Repository", " = "), ADDRESS),
];

/// A violation for each file that is too long, and each forbidden word.
pub fn check(texts: &[Text]) -> Vec<String> {
    let mut violations = Vec::new();
    for text in texts {
        let lines = text.content.lines().count();
        let may_be_long = MAY_BE_LONG.contains(&text.path.as_str()) || text.path.starts_with(RELEASED);
        if lines > MAX_LINES && !may_be_long {
            violations.push(format!("{}: {lines} lines, expected at most {MAX_LINES}", text.path));
        }
        for (number, line) in text.content.lines().enumerate() {
            for (word, why) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                violations.push(format!("{}:{}: `{word}`: {why}", text.path, number + 1));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    #[test]
    fn rejects_files_of_more_than_600_lines() {
        assert_eq!(check(&[text("a.rs", &"x\n".repeat(600))]), Vec::<String>::new());
        let violations = check(&[text("a.rs", &"x\n".repeat(601))]);
        assert_eq!(violations, ["a.rs: 601 lines, expected at most 600"]);
    }

    #[test]
    fn accepts_c_header_of_more_than_600_lines() {
        for path in ["plugin-api/include/crossdock.h", "plugin-api/abi/released/0.1/crossdock.h"] {
            assert_eq!(check(&[text(path, &"x\n".repeat(700))]), Vec::<String>::new());
        }
    }

    #[test]
    fn error_for_forbidden_word_names_its_line() {
        for (word, why) in FORBIDDEN {
            let violations = check(&[text("a.rs", &format!("fine\nsee {word}x\n"))]);
            assert_eq!(violations, [format!("a.rs:2: `{word}`: {why}")]);
        }
    }
}
