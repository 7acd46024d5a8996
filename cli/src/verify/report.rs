//! What became of the cases, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::case::{Case, Lack, Outcome, Run};
use super::coverage::{Coverage, Part};
use super::schedule::Done;
use super::seeds;
use crate::answer::{Failure, answer};
use crate::terminal;

/// Everything that was told, and where people read along.
pub struct Report {
    pub plugin: PathBuf,
    /// Each case with the first seed, or with the one that it failed with.
    pub done: Vec<Done>,
    /// Those that were tried, in order.
    seeds: Vec<u64>,
    coverage: Coverage,
    json: bool,
    demands: Demands,
}

/// What is asked of a run.
#[derive(Clone, Copy)]
pub struct Demands {
    /// All cases ran, so that what was not exercised can be told.
    pub all: bool,
    /// What was not exercised is a failure.
    pub strict: bool,
}

impl Report {
    pub fn new(plugin: &Path, json: bool, demands: Demands) -> Self {
        let (done, seeds, coverage) = Default::default();
        Self { plugin: plugin.to_path_buf(), done, seeds, coverage, json, demands }
    }

    /// What is added from now on ran with this seed.
    pub fn begin(&mut self, seed: u64) {
        self.seeds.push(seed);
    }

    /// Takes what became of a case. With another seed than the first one only that it broke its rule is news.
    pub fn add(&mut self, mut done: Done) {
        let seeded = done.coverage.seeded;
        self.coverage.join(std::mem::take(&mut done.coverage));
        done.coverage.seeded = seeded;
        let is_same = |other: &&mut Done| other.run.is_same(&done.run);
        let before = self.done.iter_mut().find(is_same);
        if before.is_some() && !done.outcome.is_bad() {
            return;
        }
        if !self.json {
            // What cannot be shown now is told by the exit status.
            let _ = terminal::without_bar(|| answer(&lines(&done)));
        }
        match before {
            Some(before) => *before = done,
            None => self.done.push(done),
        }
    }

    /// The cases that passed, and may not with another seed.
    pub fn with_seed(&self) -> Vec<Run> {
        let passed = self.done.iter().filter(|done| done.outcome == Outcome::Passed && done.coverage.seeded);
        passed.map(|done| done.run).collect()
    }

    /// What the plugin offers and no case made work, with what to give.
    pub fn not_exercised(&self) -> Vec<(&Part, &str)> {
        if self.demands.all { self.coverage.not_exercised() } else { Vec::new() }
    }

    /// Whether it is a failure that something was not exercised.
    pub fn is_strict(&self) -> bool {
        self.demands.strict
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
            out["seed"] = json!(done.run.seed);
            if done.outcome.is_bad() {
                out["replay"] = json!(done.replay);
                out["stdout"] = json!(done.stdout);
                out["stderr"] = json!(done.stderr);
            }
            out
        };
        let by_lack: BTreeMap<_, _> = self.skipped().map(|(lack, n)| (lack.word(), n)).collect();
        let part = |(part, give): (&Part, &str)| json!({ "part": part.words(), "give": give });
        let not_exercised: Vec<_> = self.not_exercised().into_iter().map(part).collect();
        json!({
            "plugin": self.plugin.display().to_string(),
            "seeds": self.seeds,
            "passed": self.count(|outcome| *outcome == Outcome::Passed),
            "failed": self.count(Outcome::is_bad),
            "skipped": self.count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            "skipped_by_lack": by_lack,
            "not_exercised": not_exercised,
            "cases": cases.iter().map(case).collect::<Vec<_>>(),
        })
    }

    /// How many cases were skipped for what they lacked, of each kind.
    fn skipped(&self) -> impl Iterator<Item = (Lack, usize)> + '_ {
        let lacks =
            |outcome: &Outcome, lack| matches!(outcome, Outcome::Skipped(skipped) if skipped.lack == lack);
        let counted =
            Lack::ALL.into_iter().map(move |lack| (lack, self.count(|outcome| lacks(outcome, lack))));
        counted.filter(|(_, n)| *n > 0)
    }

    /// The sum in words, after what was not exercised.
    fn sum(&self) -> String {
        let mut text = String::new();
        let left = self.not_exercised();
        for alike in left.chunk_by(|one, other| one.1 == other.1) {
            let parts: Vec<_> = alike.iter().map(|(part, _)| part.words()).collect();
            let give = alike.first().map_or("", |(_, give)| give);
            let line = format!("not exercised: {}: needs {give}", parts.join(", "));
            let _ = writeln!(text, "{}", crossdock::one_line(&line));
        }
        let bad = self.count(Outcome::is_bad);
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        let skipped = self.done.len() - bad - passed;
        let _ = write!(text, "{passed} passed, {bad} failed, {skipped} skipped");
        let lacks: Vec<_> = self.skipped().map(|(lack, n)| format!("{n} {}", lack.phrase())).collect();
        if !lacks.is_empty() {
            let _ = write!(text, " ({})", lacks.join(", "));
        }
        let _ = write!(text, ", with {}", seeds::words(&self.seeds));
        text
    }

    /// The sum, and the exit status.
    pub fn finish(self) -> Result<(), Failure> {
        answer(&if self.json { self.to_json().to_string() } else { self.sum() })?;
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let bad = self.count(Outcome::is_bad);
        let left = if self.is_strict() { self.not_exercised().len() } else { 0 };
        let (broken, words) = match (bad, left) {
            (0, 0) => return Ok(()),
            (0, left) => {
                ("was not exercised", format!("{left} part{} of it did not run (--strict)", s(left)))
            }
            (bad, _) => ("broke rules", format!("{bad} case{} did not pass", s(bad))),
        };
        Err(Failure::Host(crossdock::Error::Data {
            what: format!("'{}' {broken}", self.plugin.display()),
            source: crossdock::api::Error::bad_data(words),
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
