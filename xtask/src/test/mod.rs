//! `cargo xtask test`: everything, step by step, with one line of figures at the end.

mod asan;
mod counts;
mod deny;
mod fuzz;
mod python;
pub mod sim_cuda;
mod steps;
mod stream;

use crate::cargo::Workspace;
use anyhow::Result;
use clap::ValueEnum;
use counts::Counts;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Run these steps only (and the build that they need); may be given more than once
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Leave these steps out; may be given more than once
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
    /// Build and test in the release profile
    #[arg(long)]
    release: bool,
}

/// In the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// cargo fmt --check
    Fmt,
    /// The rules of the house: cargo xtask tidy
    Tidy,
    /// Lints, warnings denied
    Clippy,
    /// What may be depended on: licences, sources and bans, where cargo-deny is installed
    Deny,
    /// The CUDA images are what their compiler makes of their sources, where it can be had: cargo xtask kernels --check
    Kernels,
    /// The plugins, the command and the tests
    Build,
    /// Unit and integration tests
    Rust,
    /// The tests of everything that works with devices, over the simulated CUDA driver
    SimCuda,
    /// The code in the documentation
    Doc,
    /// Every ABI struct is FFI-safe, by abi_stable's derive
    StableAbi,
    /// Third-party peers: pyarrow reads what we write and writes what we read; the Python package, its stubs and its wheel
    Python,
    /// The boundary's tests under AddressSanitizer, where there is a nightly toolchain
    Asan,
    /// Bytes of anybody's making, 20 s for each target of fuzz/, where there is a nightly toolchain: cargo xtask fuzz
    Fuzz,
}

/// How a step ended.
enum Outcome {
    Passed(Counts),
    Failed(Counts, String),
    Skipped(String),
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// The tests load plugins and start the command, which are nobody's Cargo dependency.
    fn needs_build(self) -> bool {
        matches!(self, Self::Rust | Self::SimCuda | Self::Python)
    }
}

impl Options {
    fn wants(&self, step: Step) -> bool {
        let asked = self.only.is_empty()
            || self.only.contains(&step)
            || (step == Step::Build && self.only.iter().any(|s| s.needs_build()));
        asked && !self.skip.contains(&step)
    }
}

/// Runs the steps that were asked for, all of them whatever happens, and sums up.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut results = Vec::new();
    for step in Step::value_variants().iter().copied() {
        if !options.wants(step) {
            results.push((step, Outcome::Skipped("not asked for".to_owned()), Duration::ZERO));
            continue;
        }
        println!("\n=== {} ===", step.name());
        let start = Instant::now();
        let outcome = steps::run(step, workspace, options.release)
            .unwrap_or_else(|error| Outcome::Failed(Counts::default(), format!("{error:#}")));
        let elapsed = start.elapsed();
        println!("--- {}: {} in {:.1} s", step.name(), outcome.word(), elapsed.as_secs_f64());
        if let Some(why) = outcome.reason() {
            println!("    {why}");
        }
        results.push((step, outcome, elapsed));
    }
    Ok(sum_up(&results))
}

impl Outcome {
    /// What a step without tests of its own amounts to: one check.
    fn check(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed(Counts { passed: 1, ..Counts::default() }),
            Err(error) => Self::Failed(Counts::default(), format!("{error:#}")),
        }
    }

    /// Of a step in two parts.
    fn and(&self, other: &Self) -> Self {
        let mut counts = self.counts();
        counts += other.counts();
        let failed = [self, other].into_iter().filter(|part| matches!(part, Self::Failed(..)));
        let why: Vec<&str> = failed.filter_map(Self::reason).collect();
        if why.is_empty() { Self::Passed(counts) } else { Self::Failed(counts, why.join("; ")) }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Passed(counts) => *counts,
            // A step may fail before or beside its tests: a program that does not compile, or dies.
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
            Self::Failed(_, why) | Self::Skipped(why) => Some(why),
        }
    }
}

fn sum_up(results: &[(Step, Outcome, Duration)]) -> ExitCode {
    println!("\n=== summary ===");
    let mut total = Counts::default();
    for (step, outcome, elapsed) in results {
        let counts = outcome.counts();
        println!("{:<10} {:>7.1} s  {:<8} {counts}", step.name(), elapsed.as_secs_f64(), outcome.word());
        if let Some(why) = outcome.reason() {
            println!("{:<10} {why}", "");
        }
        total += counts;
    }
    println!("\n{total}");
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: &[Step], skip: &[Step]) -> Options {
        Options { only: only.to_vec(), skip: skip.to_vec(), release: false }
    }

    #[test]
    fn asking_for_the_python_tests_brings_the_build_that_they_need() {
        let asked = options(&[Step::Python], &[]);
        assert!(asked.wants(Step::Build) && asked.wants(Step::Python) && !asked.wants(Step::Clippy));
        assert!(!options(&[Step::Python], &[Step::Build]).wants(Step::Build));
    }

    #[test]
    fn a_step_that_failed_without_a_failed_test_still_counts_as_a_failure() {
        let outcome =
            Outcome::Failed(Counts { passed: 3, ..Counts::default() }, "does not compile".to_owned());
        assert_eq!(outcome.counts(), Counts { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_step_of_which_one_part_failed_has_failed() {
        let counts = |passed| Counts { passed, ..Counts::default() };
        let (good, bad) = (Outcome::Passed(counts(3)), Outcome::Failed(counts(2), "why".to_owned()));
        assert!(matches!(good.and(&good), Outcome::Passed(Counts { passed: 6, failed: 0, .. })));
        for both in [good.and(&bad), bad.and(&good)] {
            assert!(
                matches!(&both, Outcome::Failed(Counts { passed: 5, failed: 1, .. }, why) if why == "why")
            );
        }
    }

    #[test]
    fn a_skipped_step_counts_as_skipped_and_never_as_passed() {
        let outcome = Outcome::Skipped("no nightly toolchain".to_owned());
        assert_eq!(outcome.counts(), Counts { passed: 0, failed: 0, skipped: 1 });
    }
}
