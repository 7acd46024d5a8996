//! Checks the language rules of CONTRIBUTING.md: replaced terms, the width of comments, commit
//! subjects, and spelling.

use super::text::Text;
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

const MAX_COMMENT_COLUMNS: usize = 100;
const MAX_SUBJECT_LEN: usize = 72;

/// This file. The rule for subjects applies only to commits after the commit that added this file.
const FILE: &str = "xtask/src/tidy/language.rs";

/// Words that the glossary replaces, and their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("freight", "array transfer"),
    ("heed", "note, dispatch"),
    ("janitor", "reclaimer"),
    ("nobody", "the caller, the producer, no thread"),
    ("obey", "dispatch"),
    ("sins", "injected bugs"),
    ("somebody", "the caller, the producer, another process"),
    ("stranger", "external"),
    ("strangers", "external"),
    ("told", "declared, expected, actual"),
    ("twin", "CPU implementation"),
    ("twins", "CPU implementations"),
    ("whoever", "the caller, the consumer, the owner"),
    ("wish", "option, request"),
    ("wishes", "options, requests"),
];

/// Names of the ABI that contain a replaced word. They do not change within an ABI version.
const ABI_NAMES: &[&str] = &["host_function"];

/// Files to which the rules do not apply: records, lists of former names, this file, and the
/// glossary.
const EXCLUDED: &[&str] = &[
    "plugin-api/abi/released/",
    "tests/skew/fixtures/",
    "cli/src/verify/cases/aliases.rs",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    FILE,
];

/// Returns a violation for each replaced word in comments, identifiers, texts and documents, and
/// for each comment that is too wide.
fn check(texts: &[Text]) -> Vec<String> {
    let mut violations = Vec::new();
    let included = |text: &&Text| !EXCLUDED.iter().any(|excluded| text.path.starts_with(excluded));
    for text in texts.iter().filter(included) {
        let mut comments = Comments::new(&text.path);
        for (number, line) in text.content.lines().enumerate() {
            let place = format!("{}:{}", text.path, number + 1);
            let searched = ABI_NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, ""));
            for (word, instead) in words(&searched).filter_map(replaced) {
                violations.push(format!("{place}: `{word}`: write {instead}"));
            }
            let columns = line.chars().count();
            if comments.is_comment(line) && columns > MAX_COMMENT_COLUMNS {
                violations.push(format!(
                    "{place}: a comment of {columns} columns, expected at most {MAX_COMMENT_COLUMNS}"
                ));
            }
        }
    }
    violations
}

fn replaced(word: String) -> Option<&'static (&'static str, &'static str)> {
    REPLACED.iter().find(|(replaced, _)| *replaced == word)
}

/// The words of a line in lower case. Identifiers are split at `_` and at capital letters.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for c in line.chars() {
        let begins_word = c.is_uppercase() && previous.is_lowercase();
        if !c.is_alphabetic() || begins_word {
            words.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.into_iter().filter(|word| !word.is_empty())
}

/// Finds the lines that contain only a comment.
struct Comments {
    line_marks: &'static [&'static str],
    has_blocks: bool,
    is_in_block: bool,
}

impl Comments {
    fn new(path: &str) -> Self {
        let (line_marks, has_blocks): (&'static [&'static str], bool) = match path.rsplit_once('.') {
            Some((_, "rs" | "c" | "cpp" | "h" | "hpp" | "cu" | "cuh")) => (&["//"], true),
            Some((_, "py" | "pyi" | "sh" | "toml" | "yml" | "yaml")) => (&["#"], false),
            _ => (&[], false),
        };
        Self { line_marks, has_blocks, is_in_block: false }
    }

    fn is_comment(&mut self, line: &str) -> bool {
        let text = line.trim_start();
        let begins_block = self.has_blocks && text.starts_with("/*");
        let is_block = self.is_in_block || begins_block;
        if is_block {
            self.is_in_block = !text.contains("*/");
        }
        is_block || self.line_marks.iter().any(|mark| text.starts_with(mark))
    }
}

/// The violations of all rules of this module. Prints a line for each check that is skipped.
///
/// # Errors
/// Returns an error if git or `typos` fails.
pub fn check_all(root: &Path, texts: &[Text]) -> Result<Vec<String>> {
    let mut violations = check(texts);
    match check_spelling(root)? {
        Some(mistakes) => violations.extend(mistakes),
        None => println!("skipped: spelling: typos is not installed"),
    }
    match check_commits(root)? {
        Some(subjects) => violations.extend(subjects),
        None => println!("skipped: commit subjects: there is no git repository, or git is not installed"),
    }
    Ok(violations)
}

/// The mistakes that `typos` finds. `typos.toml` lists exceptions. `None` if `typos` is not
/// installed.
fn check_spelling(root: &Path) -> Result<Option<Vec<String>>> {
    let output = match Command::new("typos").args(["--format", "brief"]).current_dir(root).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot start typos"),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mistakes: Vec<_> = stdout.lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
    if !output.status.success() && mistakes.is_empty() {
        bail!("typos: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(Some(mistakes))
}

/// The violations of commit subjects after the commit that added this rule. `None` without git.
fn check_commits(root: &Path) -> Result<Option<Vec<String>>> {
    if !root.join(".git").exists() {
        return Ok(None);
    }
    let Some(added) = git(root, &["log", "--diff-filter=A", "--format=%H", "--", FILE])? else {
        return Ok(None);
    };
    let Some(first) = added.lines().last() else { return Ok(Some(Vec::new())) };
    let range = format!("{first}..HEAD");
    let commits = git(root, &["log", "--no-merges", "--format=%h %s", &range])?.unwrap_or_default();
    let violation = |line: &str| {
        let (hash, subject) = line.split_once(' ')?;
        subject_violation(subject).map(|violation| format!("commit {hash}: '{subject}': {violation}"))
    };
    Ok(Some(commits.lines().filter_map(violation).collect()))
}

/// The output of git. `None` if git is not installed.
fn git(root: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let output = match Command::new("git").arg("-C").arg(root).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot start git"),
    };
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Words that are not verbs, so a commit subject must not begin with them.
const NOT_VERBS: &[&str] =
    &["a", "an", "it", "no", "of", "one", "that", "the", "this", "what", "where", "who", "whoever"];
/// Verbs in the imperative that end like other forms of verbs.
const VERBS: &[&str] = &["bring", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"];

fn subject_violation(subject: &str) -> Option<String> {
    let len = subject.chars().count();
    if len > MAX_SUBJECT_LEN {
        return Some(format!("{len} characters, expected at most {MAX_SUBJECT_LEN}"));
    }
    let first = subject.split_whitespace().next().unwrap_or_default();
    let word = first.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is_other_form = word.ends_with("ed")
        || word.ends_with("ing")
        || (word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us"));
    let is_verb = VERBS.contains(&word.as_str()) || !(is_other_form || NOT_VERBS.contains(&word.as_str()));
    let is_capital = first.chars().next().is_some_and(char::is_uppercase);
    (!is_verb || !is_capital).then(|| "expected a verb in the imperative, with a capital letter".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    #[test]
    fn rejects_replaced_words_in_comments_identifiers_and_documents() {
        for (path, line, word) in [
            ("a.rs", "// What it was told.", "told"),
            ("a.rs", "let told_bytes = 1;", "told"),
            ("a.rs", "struct ToldSize;", "told"),
            ("a.c", "/* Whoever calls this. */", "whoever"),
            ("a.md", "Nobody reads it.", "nobody"),
            ("a.py", "WISHES = []", "wishes"),
        ] {
            let violations = check(&[text(path, line)]);
            assert_eq!(violations.len(), 1, "{line}");
            assert!(violations[0].starts_with(&format!("{path}:1: `{word}`: write ")), "{violations:?}");
        }
    }

    #[test]
    fn accepts_other_words_and_excluded_files() {
        let accepted = [
            text("a.rs", "let retold = folder.untold(); // stolid"),
            text("CHANGELOG.md", "what it was told"),
            text("plugin-api/abi/released/0.1/crossdock.h", "/* whoever */"),
            text("a.h", "crossdock_code (*host_function)(size_t n_args);"),
        ];
        assert_eq!(check(&accepted), Vec::<String>::new());
    }

    #[test]
    fn rejects_comments_wider_than_100_columns() {
        let wide = |start: &str| format!("{start}{}", "x".repeat(101 - start.len()));
        for (path, content, line) in [
            ("a.rs", wide("    /// "), 1),
            ("a.py", wide("# "), 1),
            ("a.h", format!("/*\n{}\n */", wide(" * ")), 2),
        ] {
            let violations = check(&[text(path, &content)]);
            let expected = format!("{path}:{line}: a comment of 101 columns, expected at most 100");
            assert_eq!(violations, [expected]);
        }
    }

    #[test]
    fn accepts_comments_of_100_columns_and_wide_code() {
        let line = |start: &str, len: usize| format!("{start}{}", "x".repeat(len - start.len()));
        let accepted = [
            text("a.rs", &line("// ", 100)),
            text("a.rs", &line("let x = ", 110)),
            text("a.h", &format!("/* one */\n{}", line("int x", 110))),
            text("a.md", &line("# ", 130)),
        ];
        assert_eq!(check(&accepted), Vec::<String>::new());
    }

    #[test]
    fn rejects_long_and_descriptive_commit_subjects() {
        let long = format!("Add {}", "x".repeat(69));
        for subject in
            [long.as_str(), "Added a test", "Adds a test", "Adding a test", "The test is added", "add a test"]
        {
            assert!(subject_violation(subject).is_some(), "{subject}");
        }
    }

    #[test]
    fn accepts_imperative_commit_subjects() {
        let longest = format!("Add {}", "x".repeat(68));
        for subject in [longest.as_str(), "Pass the stream", "Embed images", "Need no driver", "Focus tests"]
        {
            assert_eq!(subject_violation(subject), None, "{subject}");
        }
    }
}
