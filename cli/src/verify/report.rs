//! The report of a run, as text or JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::case::{Case, Outcome, Run, SkipKind};
use super::coverage::{Coverage, Part};
use super::schedule::CaseResult;
use super::seeds;
use crate::output::{Failure, write_output};
use crate::terminal;

/// The results of a run. As text, each result is printed when it is added.
pub struct Report {
    pub plugin: PathBuf,
    /// The result of each case with the first seed, or with the seed with which the case failed.
    pub results: Vec<CaseResult>,
    /// The seeds that were tried, in order.
    seeds: Vec<u64>,
    coverage: Coverage,
    json: bool,
    options: ReportOptions,
}

#[derive(Clone, Copy)]
pub struct ReportOptions {
    /// Whether all cases run. Only then does the report list the parts that no case exercised.
    pub is_complete: bool,
    /// Whether the run fails if a part of the plugin was not exercised.
    pub is_strict: bool,
}

impl Report {
    pub fn new(plugin: &Path, json: bool, options: ReportOptions) -> Self {
        let (results, seeds, coverage) = Default::default();
        Self { plugin: plugin.to_path_buf(), results, seeds, coverage, json, options }
    }

    /// Starts a round with this seed.
    pub fn begin(&mut self, seed: u64) {
        self.seeds.push(seed);
    }

    /// Adds the result of a case. After the first seed, only failures are added.
    pub fn add(&mut self, mut result: CaseResult) {
        let seeded = result.coverage.seeded;
        self.coverage.join(std::mem::take(&mut result.coverage));
        result.coverage.seeded = seeded;
        let is_same = |other: &&mut CaseResult| other.run.is_same(&result.run);
        let previous = self.results.iter_mut().find(is_same);
        if previous.is_some() && !result.outcome.is_bad() {
            return;
        }
        if !self.json {
            // If standard output is closed, the exit status still shows whether the run failed.
            let _ = terminal::without_bar(|| write_output(&lines(&result)));
        }
        match previous {
            Some(previous) => *previous = result,
            None => self.results.push(result),
        }
    }

    /// The cases that passed and may fail with another seed.
    pub fn runs_for_next_seed(&self) -> Vec<Run> {
        let is_seeded = |result: &&CaseResult| result.coverage.seeded;
        let passed = self.results.iter().filter(|result| result.outcome == Outcome::Passed);
        passed.filter(is_seeded).map(|result| result.run).collect()
    }

    /// The parts of the plugin that no case exercised, each with the input that it needs.
    pub fn not_exercised(&self) -> Vec<(&Part, &str)> {
        if self.options.is_complete { self.coverage.not_exercised() } else { Vec::new() }
    }

    /// Whether the run fails if a part of the plugin was not exercised.
    pub fn is_strict(&self) -> bool {
        self.options.is_strict
    }

    /// The number of cases whose outcome satisfies the predicate.
    pub fn count(&self, is_counted: impl Fn(&Outcome) -> bool) -> usize {
        self.results.iter().filter(|result| is_counted(&result.outcome)).count()
    }

    fn to_json(&self) -> Value {
        let mut results: Vec<&CaseResult> = self.results.iter().collect();
        results.sort_by_key(|result| (result.run.case.name, result.run.device));
        let case = |result: &&CaseResult| {
            let mut out = result.outcome.to_json();
            out["name"] = json!(result.run.case.name);
            out["device"] = json!(result.run.device.map(|device| device.to_string()));
            out["seconds"] = json!(result.seconds);
            out["seed"] = json!(result.run.seed);
            if result.outcome.is_bad() {
                out["replay"] = json!(result.replay);
                out["stdout"] = json!(result.stdout);
                out["stderr"] = json!(result.stderr);
            }
            out
        };
        let by_kind: BTreeMap<_, _> = self.skipped().map(|(kind, n)| (kind.id(), n)).collect();
        let part = |(part, need): (&Part, &str)| json!({ "part": part.label(), "give": need });
        let not_exercised: Vec<_> = self.not_exercised().into_iter().map(part).collect();
        json!({
            "plugin": self.plugin.display().to_string(),
            "seeds": self.seeds,
            "passed": self.count(|outcome| *outcome == Outcome::Passed),
            "failed": self.count(Outcome::is_bad),
            "skipped": self.count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            "skipped_by_lack": by_kind,
            "not_exercised": not_exercised,
            "cases": results.iter().map(case).collect::<Vec<_>>(),
        })
    }

    /// The number of skipped cases of each kind, without the kinds that have none.
    fn skipped(&self) -> impl Iterator<Item = (SkipKind, usize)> + '_ {
        let is_of =
            |outcome: &Outcome, kind| matches!(outcome, Outcome::Skipped(skipped) if skipped.kind == kind);
        let counts =
            SkipKind::ALL.into_iter().map(move |kind| (kind, self.count(|outcome| is_of(outcome, kind))));
        counts.filter(|(_, n)| *n > 0)
    }

    /// The summary: the parts that were not exercised, and the number of cases by outcome.
    fn summary(&self) -> String {
        let mut text = String::new();
        for same_need in self.not_exercised().chunk_by(|one, other| one.1 == other.1) {
            let parts: Vec<_> = same_need.iter().map(|(part, _)| part.label()).collect();
            let need = same_need.first().map_or("", |(_, need)| need);
            let line = format!("not exercised: {}: needs {need}", parts.join(", "));
            let _ = writeln!(text, "{}", crossdock::one_line(&line));
        }
        let bad = self.count(Outcome::is_bad);
        let passed = self.count(|outcome| *outcome == Outcome::Passed);
        let skipped = self.results.len() - bad - passed;
        let _ = write!(text, "{passed} passed, {bad} failed, {skipped} skipped");
        let kinds: Vec<_> = self.skipped().map(|(kind, n)| format!("{n} {}", kind.phrase())).collect();
        if !kinds.is_empty() {
            let _ = write!(text, " ({})", kinds.join(", "));
        }
        let _ = write!(text, ", with {}", seeds::describe(&self.seeds));
        text
    }

    /// Prints the summary or the JSON report.
    ///
    /// # Errors
    /// A case did not pass, or the run is strict and a part of the plugin was not exercised.
    pub fn finish(self) -> Result<(), Failure> {
        write_output(&if self.json { self.to_json().to_string() } else { self.summary() })?;
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let n_bad = self.count(Outcome::is_bad);
        let n_not_exercised = if self.is_strict() { self.not_exercised().len() } else { 0 };
        let (problem, details) = match (n_bad, n_not_exercised) {
            (0, 0) => return Ok(()),
            (0, n) => {
                ("was not fully exercised", format!("no case ran {n} part{} of the plugin (--strict)", s(n)))
            }
            (n, _) => ("broke rules", format!("{n} case{} did not pass", s(n))),
        };
        Err(Failure::Host(crossdock::Error::Data {
            what: format!("'{}' {problem}", self.plugin.display()),
            source: crossdock::api::Error::bad_data(details),
        }))
    }
}

/// One line for a case; for a failure also the rule, the output and the command that repeats the
/// case.
fn lines(result: &CaseResult) -> String {
    let mut text = format!("{:<9} {}", result.outcome.name(), result.run);
    let details = result.outcome.details();
    if !details.is_empty() {
        let _ = write!(text, ": {}", crossdock::one_line(&details));
    }
    if result.outcome.is_bad() {
        let _ = write!(text, "\n          rule: {} ({})", result.run.case.rule, result.run.case.spec_ref);
        for (name, output) in [("stdout", &result.stdout), ("stderr", &result.stderr)] {
            for line in output.lines() {
                let _ = write!(text, "\n          {name}: {}", terminal_safe(line));
            }
        }
        let _ = write!(text, "\n          replay: {}", result.replay);
    }
    text
}

/// Replaces control characters, so that a plugin's output cannot control the terminal.
fn terminal_safe(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The cases and their rules.
pub fn list(cases: &[&Case], as_json: bool) -> String {
    if as_json {
        let case = |case: &&Case| {
            json!({ "name": case.name, "rule": case.rule, "stands": case.spec_ref, "ground": case.depends_on,
                    "on_devices": case.on_devices })
        };
        return json!(cases.iter().map(case).collect::<Vec<_>>()).to_string();
    }
    let line = |case: &&Case| format!("{:<28} {} ({})\n", case.name, case.rule, case.spec_ref);
    cases.iter().map(line).collect()
}
