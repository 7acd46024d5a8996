//! `cargo xtask test`: runs all steps, and prints the totals.

mod asan;
mod avro;
mod book;
mod counts;
mod deny;
mod engines;
mod fuzz;
mod mutants;
mod object_store;
mod parquet;
pub mod python;
mod release;
mod rust;
mod sample;
mod schedule;
mod separate;
pub mod sim_cuda;
mod skew;
mod step;
mod steps;
mod stream;
mod vortex_writer;

use crate::cargo::Workspace;
use anyhow::Result;
use clap::ValueEnum;
use counts::Counts;
use sample::{Sample, Tier};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use step::Step;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Options {
    /// Run all tests, and not only the tests that a change is likely to break and a sample of
    /// repetitive tests
    #[arg(long)]
    all: bool,
    /// The number that selects the sample [default: the hash of the commit]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    sample: Option<u32>,
    /// Run only these steps, and the builds that they need; may be given more than once
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Skip these steps; may be given more than once
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
    /// Run only tests whose names contain this text, or this file or test of pytest; needs --only
    #[arg(long, value_name = "TEXT", requires = "only")]
    filter: Option<String>,
    /// Build and test in the release profile
    #[arg(long)]
    release: bool,
}

/// The context of a step.
struct Run<'a> {
    workspace: &'a Workspace,
    tier: Tier,
    filter: Option<String>,
    release: bool,
}

/// The outcome of a step.
enum Outcome {
    Passed(Counts),
    Failed(Counts, Failure),
    Skipped(String),
}

/// The details of a failure.
struct Failure {
    why: String,
    /// The names of the failed tests.
    tests: Vec<String>,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, tests: Vec::new() }
    }
}

impl Options {
    fn wants(&self, step: Step) -> bool {
        let is_selected = self.only.is_empty()
            || self.only.contains(&step)
            || self.only.iter().any(|only| only.needs().contains(&step));
        is_selected && !self.skip.contains(&step)
    }

    fn tier(&self, workspace: &Workspace) -> Tier {
        match (self.all, self.sample) {
            (true, _) => Tier::All,
            (false, Some(number)) => Tier::Short(Sample(number)),
            (false, None) => Tier::Short(Sample::of_commit(workspace)),
        }
    }
}

/// The number of steps that run at the same time. Most steps use all cores, so more steps at a time
/// would only need more memory.
const MAX_SLOTS: usize = 2;

/// Runs the selected steps, also after failures, and prints a summary.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let tier = options.tier(workspace);
    let run = Run { workspace, tier, filter: options.filter.clone(), release: options.release };
    match tier {
        Tier::All => println!("all tests"),
        Tier::Short(_) => println!(
            "the short tier, with the sample {} (everything: cargo xtask test --all)",
            tier.arguments()
        ),
    }
    let steps: Vec<Step> =
        Step::value_variants().iter().copied().filter(|step| options.wants(*step)).collect();
    let results = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    schedule::run(&steps, cores.min(MAX_SLOTS), |step| {
        let result = one(&run, step);
        results.lock().unwrap_or_else(PoisonError::into_inner).push((step, result.0, result.1));
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(step, ..)| *step);
    Ok(sum_up(&run, options, &results, begin.elapsed()))
}

fn one(run: &Run<'_>, step: Step) -> (Outcome, Duration) {
    println!("\n=== {} ===", step.name());
    stream::label(format!("{:<9}| ", step.name()));
    let start = Instant::now();
    let outcome = steps::run(step, run)
        .unwrap_or_else(|error| Outcome::Failed(Counts::default(), format!("{error:#}").into()));
    let elapsed = start.elapsed();
    println!("--- {}: {} in {:.1} s", step.name(), outcome.word(), elapsed.as_secs_f64());
    if let Some(why) = outcome.reason() {
        println!("    {why}");
    }
    (outcome, elapsed)
}

impl Run<'_> {
    /// The command that repeats a failure of a step.
    fn replay(&self, step: Step, tests: &[String]) -> String {
        let mut command = format!("cargo xtask test {} --only {}", self.tier.arguments(), step.name());
        if self.release {
            command += " --release";
        }
        // A filter is only one text, so the command repeats one test. The summary lists the other
        // failed tests.
        if let Some(test) = tests.first() {
            command += &format!(" --filter '{test}'");
        }
        command
    }
}

impl Outcome {
    /// The outcome of a step without tests, which counts as one test.
    fn check(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed(Counts { passed: 1, ..Counts::default() }),
            Err(error) => Self::Failed(Counts::default(), format!("{error:#}").into()),
        }
    }

    /// The outcome of a step with two parts. The step is skipped only if both parts are skipped.
    fn and(self, other: Self) -> Self {
        if let (Self::Skipped(a), Self::Skipped(b)) = (&self, &other) {
            return Self::Skipped(format!("{a}; {b}"));
        }
        let mut counts = self.counts();
        counts += other.counts();
        let failures: Vec<Failure> = [self, other].into_iter().filter_map(Self::failure).collect();
        if failures.is_empty() {
            return Self::Passed(counts);
        }
        let why = failures.iter().map(|failure| failure.why.as_str()).collect::<Vec<_>>().join("; ");
        Self::Failed(counts, Failure { why, tests: failures.into_iter().flat_map(|f| f.tests).collect() })
    }

    fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(_, failure) => Some(failure),
            _ => None,
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Passed(counts) => *counts,
            // A step may fail without a failed test, for example because a program does not compile
            // or crashes.
            Self::Failed(counts, _) => Counts { failed: counts.failed.max(1), ..*counts },
            Self::Skipped(_) => Counts { skipped: 1, ..Counts::default() },
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(..) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(_, failure) => Some(&failure.why),
            Self::Skipped(why) => Some(why),
        }
    }
}

type Results = [(Step, Outcome, Duration)];

fn sum_up(run: &Run<'_>, options: &Options, results: &Results, elapsed: Duration) -> ExitCode {
    println!("\n=== summary ===");
    let mut total = Counts::default();
    for (step, outcome, elapsed) in results {
        let counts = outcome.counts();
        println!("{:<10} {:>7.1} s  {:<8} {counts}", step.name(), elapsed.as_secs_f64(), outcome.word());
        if let Some(why) = outcome.reason() {
            println!("{:<10} {why}", "");
        }
        if let Outcome::Failed(_, failure) = outcome {
            failure.tests.iter().for_each(|test| println!("{:<10} failed: {test}", ""));
            println!("{:<10} to repeat it: {}", "", run.replay(*step, &failure.tests));
        }
        total += counts;
    }
    for step in Step::value_variants().iter().filter(|step| !options.wants(**step)) {
        println!("{:<10}            not selected", step.name());
        total.skipped += 1;
    }
    for warning in budget_warnings(run.tier, results) {
        println!("{warning}");
    }
    println!("{:.0} s in total", elapsed.as_secs_f64());
    println!("\n{total}");
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A warning for each step that exceeded its budget by more than a third.
fn budget_warnings(tier: Tier, results: &Results) -> Vec<String> {
    let over = results.iter().filter_map(|(step, _, elapsed)| {
        let budget = step.budget(tier);
        let seconds = elapsed.as_secs();
        (seconds > budget + budget / 3).then(|| {
            format!(
                "warning: {} took {seconds} s, and its budget is {budget} s (xtask/src/test/step.rs)",
                step.name()
            )
        })
    });
    over.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: &[Step], skip: &[Step]) -> Options {
        let (only, skip) = (only.to_vec(), skip.to_vec());
        Options { all: false, sample: None, only, skip, filter: None, release: false }
    }

    fn failed(passed: u64, why: &str, tests: &[&str]) -> Outcome {
        let tests = tests.iter().map(ToString::to_string).collect();
        Outcome::Failed(Counts { passed, ..Counts::default() }, Failure { why: why.to_owned(), tests })
    }

    fn passed(passed: u64) -> Outcome {
        Outcome::Passed(Counts { passed, ..Counts::default() })
    }

    #[test]
    fn selected_step_also_runs_the_build_steps_that_it_needs() {
        let python = options(&[Step::Python], &[]);
        assert!(python.wants(Step::Build) && python.wants(Step::Venv) && python.wants(Step::Python));
        assert!(!python.wants(Step::Clippy));
        assert!(!options(&[Step::Python], &[Step::Build]).wants(Step::Build));
    }

    #[test]
    fn failure_without_a_failed_test_counts_as_one_failed_test() {
        let counts = Counts { passed: 3, failed: 1, skipped: 0 };
        assert_eq!(failed(3, "does not compile", &[]).counts(), counts);
    }

    #[test]
    fn step_with_one_failed_part_fails() {
        assert!(matches!(passed(3).and(passed(3)), Outcome::Passed(Counts { passed: 6, failed: 0, .. })));
        for both in [passed(3).and(failed(2, "why", &["a"])), failed(2, "why", &["a"]).and(passed(3))] {
            let Outcome::Failed(counts, failure) = both else { panic!("expected a failure") };
            assert_eq!((counts.passed, counts.failed), (5, 1));
            assert_eq!((failure.why.as_str(), failure.tests), ("why", vec!["a".to_owned()]));
        }
    }

    #[test]
    fn skipped_step_counts_as_skipped() {
        let skipped = || Outcome::Skipped("no nightly toolchain".to_owned());
        assert_eq!(skipped().counts(), Counts { passed: 0, failed: 0, skipped: 1 });
        assert!(matches!(skipped().and(skipped()), Outcome::Skipped(_)));
        assert_eq!(skipped().and(passed(2)).counts(), Counts { passed: 2, failed: 0, skipped: 1 });
    }

    #[test]
    fn replay_command_contains_tier_step_and_test() {
        let workspace = Workspace::load().unwrap();
        let tier = Tier::Short(Sample(7));
        let run = Run { workspace: &workspace, tier, filter: None, release: false };
        let tests = ["a::b".to_owned(), "c".to_owned()];
        assert_eq!(
            run.replay(Step::SimCuda, &tests),
            "cargo xtask test --sample 7 --only sim-cuda --filter 'a::b'"
        );
        let run = Run { tier: Tier::All, release: true, ..run };
        assert_eq!(run.replay(Step::Fmt, &[]), "cargo xtask test --all --only fmt --release");
    }

    #[test]
    fn warns_of_steps_that_exceed_their_budget() {
        let budget = Step::Rust.budget(Tier::All);
        let result = |seconds| [(Step::Rust, passed(1), Duration::from_secs(seconds))];
        assert_eq!(budget_warnings(Tier::All, &result(budget + budget / 3)), Vec::<String>::new());
        let warnings = budget_warnings(Tier::All, &result(budget + budget / 3 + 1));
        assert!(warnings[0].contains("rust took"), "{warnings:?}");
    }
}
