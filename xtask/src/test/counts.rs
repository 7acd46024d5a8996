//! Counts tests in the output of test programs.

use std::fmt;
use std::ops::AddAssign;

/// The numbers of tests by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Counts {
    /// Adds a line of `cargo test`. Only `test result:` lines and `skipped:` lines count.
    pub fn add_cargo_line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            let figures = result.split_once(". ").map_or(result, |(_, figures)| figures);
            for (number, word) in pairs(figures, ';') {
                match word {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.skipped += number,
                    _ => {}
                }
            }
        } else if line.starts_with("skipped: ") {
            self.skipped += 1;
        }
    }

    /// Subtracts the tests that skipped themselves from the passed tests, because the Rust test
    /// harness counts them as passed.
    pub fn without_self_skipped(mut self, self_skipped: u64) -> Self {
        self.passed = self.passed.saturating_sub(self_skipped);
        self
    }

    /// Parses pytest's last line: `1 failed, 20 passed, 3 skipped in 4.56s`.
    pub fn from_pytest_line(line: &str) -> Option<Self> {
        let (figures, _) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        let mut counts = Self::default();
        let mut any = false;
        for (number, word) in pairs(figures, ',') {
            any = true;
            match word {
                "passed" | "xpassed" => counts.passed += number,
                "failed" | "error" | "errors" => counts.failed += number,
                "skipped" | "xfailed" => counts.skipped += number,
                _ => {}
            }
        }
        any.then_some(counts)
    }
}

/// Parses `5 passed; 0 failed` as (5, "passed"), (0, "failed").
fn pairs(figures: &str, separator: char) -> impl Iterator<Item = (u64, &str)> {
    figures.split(separator).filter_map(|figure| {
        let (number, word) = figure.trim().split_once(' ')?;
        Some((number.parse().ok()?, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_cargo_results_and_counts_ignored_tests_as_skipped() {
        let mut counts = Counts::default();
        counts.add_cargo_line("running 3 tests");
        counts.add_cargo_line(
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        counts.add_cargo_line(
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1s",
        );
        assert_eq!(counts, Counts { passed: 6, failed: 2, skipped: 1 });
    }

    #[test]
    fn tests_that_skip_themselves_count_as_skipped() {
        let mut counts = Counts::default();
        counts.add_cargo_line("skipped: golden files: ARROW_TEST_DATA is not set");
        counts.add_cargo_line("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(counts.without_self_skipped(1), Counts { passed: 1, failed: 0, skipped: 1 });
    }

    #[test]
    fn parses_pytest_lines_with_and_without_decoration() {
        let expected = Counts { passed: 20, failed: 3, skipped: 4 };
        let plain = "1 failed, 20 passed, 3 skipped, 1 xfailed, 2 errors, 9 warnings in 4.56s";
        assert_eq!(Counts::from_pytest_line(plain), Some(expected));
        let ornate = format!("=========== {plain} (0:00:04) ============");
        assert_eq!(Counts::from_pytest_line(&ornate), Some(expected));
        assert_eq!(Counts::from_pytest_line("no tests ran in 0.01s"), None);
        assert_eq!(Counts::from_pytest_line("tests/python/test_golden.py ....  [ 10%]"), None);
    }

    #[test]
    fn summary_line_contains_the_three_counts() {
        assert_eq!(Counts { passed: 7, failed: 1, skipped: 2 }.to_string(), "7 passed, 1 failed, 2 skipped");
    }
}
