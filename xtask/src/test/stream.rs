//! Running a program so that its lines are both shown and read.

use super::Outcome;
use super::counts::Counts;
use crate::cargo::show;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

/// Runs `cargo test ...`, counting.
pub fn cargo_test(command: &mut Command) -> Result<Outcome> {
    let mut counts = Counts::default();
    let mut self_skipped = 0;
    let status = lines(command, |line| {
        self_skipped += u64::from(line.starts_with("skipped: "));
        counts.add_cargo_line(line);
    })?;
    Ok(outcome(command, status, counts.without_self_skipped(self_skipped)))
}

/// Runs pytest, counting.
pub fn pytest(command: &mut Command) -> Result<Outcome> {
    let mut counts = Counts::default();
    let status = lines(command, |line| {
        if let Some(found) = Counts::from_pytest_line(line) {
            counts = found;
        }
    })?;
    Ok(outcome(command, status, counts))
}

fn outcome(command: &Command, status: ExitStatus, counts: Counts) -> Outcome {
    if status.success() {
        Outcome::Passed(counts)
    } else {
        Outcome::Failed(counts, format!("{} ended with {status}", show(command)))
    }
}

/// Both of the program's outputs go to ours, line by line, so that neither cuts into a line of the other.
fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start {}", show(command)))?;
    let (sender, receiver) = mpsc::channel();
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, sender.clone())),
        child.stderr.take().map(|pipe| forward(pipe, sender.clone())),
    ];
    drop(sender);
    for line in receiver {
        println!("{line}");
        each(&line);
    }
    for reader in readers.into_iter().flatten() {
        // A reader ends at the end of its pipe and has nothing to say; it cannot fail.
        drop(reader.join());
    }
    child.wait().with_context(|| format!("cannot wait for {}", show(command)))
}

fn forward(pipe: impl Read + Send + 'static, to: mpsc::Sender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // Bytes, not text: a failing test may print anything.
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
    fn lines_of_both_outputs_are_counted_and_the_status_is_kept() {
        let script =
            "echo 'skipped: a: no GPU' >&2; printf 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 3";
        let outcome = cargo_test(Command::new("sh").args(["-c", script])).unwrap();
        let Outcome::Failed(counts, why) = outcome else { panic!("expected a failure") };
        assert_eq!(counts, Counts { passed: 1, failed: 0, skipped: 1 });
        assert!(why.contains("exit status: 3"), "{why}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_with_its_name() {
        let Err(error) = pytest(&mut Command::new("no-such-program-anywhere")) else {
            panic!("expected an error")
        };
        assert!(format!("{error:#}").contains("no-such-program-anywhere"), "{error:#}");
    }
}
