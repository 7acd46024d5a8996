//! What became of the cases, for people and for programs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::case::{Case, Outcome};
use super::schedule::Done;
use crate::answer::{Failure, answer};
use crate::terminal;

/// Everything that was told, and where people read along.
pub struct Report {
    pub plugin: PathBuf,
    pub seed: u64,
    pub done: Vec<Done>,
    json: bool,
}

impl Report {
    pub fn new(plugin: &Path, seed: u64, json: bool) -> Self {
        Self { plugin: plugin.to_path_buf(), seed, done: Vec::new(), json }
    }

    pub fn add(&mut self, done: Done) {
        if !self.json {
            // What cannot be shown now is told by the exit status.
            let _ = terminal::without_bar(|| answer(&lines(&done)));
        }
        self.done.push(done);
    }

    pub fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.done.iter().filter(|done| is(&done.outcome)).count()
    }

    fn to_json(&self) -> Value {
        let mut cases: Vec<&Done> = self.done.iter().collect();
        cases.sort_by_key(|done| (done.run.case.name, done.run.device));
        let case = |done: &&Done| {
            let mut out = done.outcome.to_json();
            out["name"] = json!(done.run.case.name);
            out["device"] = json!(done.run.device.map(|device| device.to_string()));
            out["seconds"] = json!(done.seconds);
            if done.outcome.is_bad() {
                out["replay"] = json!(done.replay);
                out["stdout"] = json!(done.stdout);
                out["stderr"] = json!(done.stderr);
            }
            out
        };
        json!({
            "plugin": self.plugin.display().to_string(),
            "seed": self.seed,
            "passed": self.count(|outcome| *outcome == Outcome::Passed),
            "failed": self.count(Outcome::is_bad),
            "skipped": self.count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            "cases": cases.iter().map(case).collect::<Vec<_>>(),
        })
    }

    /// The sum, and the exit status.
    pub fn finish(self) -> Result<(), Failure> {
        let bad = self.count(Outcome::is_bad);
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        let skipped = self.done.len() - bad - passed;
        if self.json {
            answer(&self.to_json().to_string())?;
        } else {
            answer(&format!("{passed} passed, {bad} failed, {skipped} skipped, with seed {}", self.seed))?;
        }
        if bad == 0 {
            return Ok(());
        }
        let plugin = self.plugin.display();
        let s = if bad == 1 { "" } else { "s" };
        Err(Failure::Host(crossdock::Error::Data {
            what: format!("'{plugin}' broke rules"),
            source: crossdock::api::Error::bad_data(format!("{bad} case{s} did not pass")),
        }))
    }
}

/// A line for a case; for one that failed all that helps.
fn lines(done: &Done) -> String {
    let mut text = format!("{:<9} {}", done.outcome.word(), done.run);
    let words = done.outcome.words();
    if !words.is_empty() {
        let _ = write!(text, ": {}", crossdock::one_line(&words));
    }
    if done.outcome.is_bad() {
        let _ = write!(text, "\n          rule: {} ({})", done.run.case.rule, done.run.case.stands);
        for (name, output) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
            for line in output.lines() {
                let _ = write!(text, "\n          {name}: {}", terminal_safe(line));
            }
        }
        let _ = write!(text, "\n          again: {}", done.replay);
    }
    text
}

/// What a plugin printed moves no cursor.
fn terminal_safe(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The cases and their rules.
pub fn list(cases: &[&Case], as_json: bool) -> String {
    if as_json {
        let case = |case: &&Case| {
            json!({ "name": case.name, "rule": case.rule, "stands": case.stands, "ground": case.ground,
                    "on_devices": case.on_devices })
        };
        return json!(cases.iter().map(case).collect::<Vec<_>>()).to_string();
    }
    let line = |case: &&Case| format!("{:<28} {} ({})\n", case.name, case.rule, case.stands);
    cases.iter().map(line).collect()
}
