//! Runs programs. Prints the lines of their output, and counts the tests in them.

use super::counts::Counts;
use super::{Failure, Outcome};
use crate::cargo::show;
use anyhow::{Context, Result, bail};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

thread_local! {
    /// The prefix of the lines that this thread's step prints. It distinguishes steps that run at
    /// the same time.
    static LABEL: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Sets the prefix of this thread's lines.
pub fn label(label: String) {
    LABEL.with_borrow_mut(|current| *current = label);
}

/// Prints a line with the prefix of this thread's step.
pub fn line(text: &str) {
    LABEL.with_borrow(|label| println!("{label}{text}"));
}

/// Runs a program, and returns its exit status.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    lines(command, |_| ())
}

/// Runs a program that must succeed.
pub fn check(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// Runs a Rust test program or `cargo test ...`, and counts the tests.
pub fn cargo_test(command: &mut Command) -> Result<Outcome> {
    let mut counts = Counts::default();
    let mut self_skipped = 0;
    let mut failed = Vec::new();
    let status = lines(command, |line| {
        self_skipped += u64::from(line.starts_with("skipped: "));
        counts.add_cargo_line(line);
        failed.extend(failed_cargo_test(line));
    })?;
    Ok(outcome(command, status, counts.without_self_skipped(self_skipped), failed))
}

/// The exit status of pytest if no test was selected.
const NO_TESTS: i32 = 5;

/// Runs pytest, and counts the tests. If pytest selects no test, the step fails, unless
/// `may_select_none` is true.
pub fn pytest(command: &mut Command, may_select_none: bool) -> Result<Outcome> {
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    let status = lines(command, |line| {
        if let Some(found) = Counts::from_pytest_line(line) {
            counts = found;
        }
        failed.extend(failed_pytest(line));
    })?;
    if may_select_none && status.code() == Some(NO_TESTS) {
        return Ok(Outcome::Passed(counts));
    }
    Ok(outcome(command, status, counts, failed))
}

/// The name in a line of the form `test module::name ... FAILED`.
fn failed_cargo_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name).to_owned())
}

/// The name in a line of the form `FAILED tests/test_a.py::test_b[c] - AssertionError: ...`.
fn failed_pytest(line: &str) -> Option<String> {
    let rest = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    Some(rest.split(" - ").next().unwrap_or(rest).to_owned())
}

fn outcome(command: &Command, status: ExitStatus, counts: Counts, tests: Vec<String>) -> Outcome {
    if status.success() {
        return Outcome::Passed(counts);
    }
    let why = format!("{} ended with {status}", show(command));
    Outcome::Failed(counts, Failure { why, tests })
}

/// Copies standard output and standard error of the program to standard output, line by line.
fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start {}", show(command)))?;
    let (sender, receiver) = mpsc::channel();
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, sender.clone())),
        child.stderr.take().map(|pipe| forward(pipe, sender.clone())),
    ];
    drop(sender);
    for text in receiver {
        line(&text);
        each(&text);
    }
    for reader in readers.into_iter().flatten() {
        // The result is ignored, because a reader ends when its pipe is closed, and cannot fail.
        drop(reader.join());
    }
    child.wait().with_context(|| format!("cannot wait for {}", show(command)))
}

fn forward(pipe: impl Read + Send + 'static, to: mpsc::Sender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // The output may not be UTF-8.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            if to.send(text).is_err() {
                return;
            }
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_of_both_outputs_and_returns_the_status() {
        let script = "echo 'skipped: a: no GPU' >&2; echo 'test a::b ... FAILED'; \
                      printf 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 3";
        let outcome = cargo_test(Command::new("sh").args(["-c", script])).unwrap();
        let Outcome::Failed(counts, failure) = outcome else { panic!("expected a failure") };
        assert_eq!(counts, Counts { passed: 1, failed: 0, skipped: 1 });
        assert!(failure.why.contains("exit status: 3"), "{}", failure.why);
        assert_eq!(failure.tests, ["a::b"]);
    }

    #[test]
    fn parses_names_of_failed_tests() {
        assert_eq!(failed_cargo_test("test a::b ... ok"), None);
        assert_eq!(failed_cargo_test("test a - should panic ... FAILED").as_deref(), Some("a"));
        let line = "FAILED tests/test_a.py::test_b[c d] - AssertionError: no - never";
        assert_eq!(failed_pytest(line).as_deref(), Some("tests/test_a.py::test_b[c d]"));
        assert_eq!(failed_pytest("1 failed in 2 s"), None);
    }

    #[test]
    fn error_for_a_missing_program_names_the_program() {
        let Err(error) = pytest(&mut Command::new("no-such-program-anywhere"), true) else {
            panic!("expected an error")
        };
        assert!(format!("{error:#}").contains("no-such-program-anywhere"), "{error:#}");
    }
}
