//! Checks with a few mutants of one crate whether the crate's own tests find small faults.

use super::sample::Sample;
use super::{Counts, Failure, Outcome, Run, stream};
use crate::mutants::{self, Options};
use anyhow::Result;

/// The number of mutants.
const SAMPLE: usize = 8;
/// The maximum number of missed mutants with which the step passes. Missed mutants are reported.
/// The goal is that tests find 95 of 100 mutants, and one missed mutant in a small sample does not
/// contradict this goal. `cargo xtask mutants` allows none.
const MAX_MISSED: usize = 1;

/// Runs only with --all, and if cargo-mutants is installed. The commit selects the crate and its
/// mutants. All mutants are of one crate, because each additional crate costs a build of its
/// dependencies and a run of its tests.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    if run.tier.is_short() {
        return Ok(Outcome::Skipped("only with --all, because each mutant is built and tested".to_owned()));
    }
    if let Some(why) = mutants::missing() {
        return Ok(Outcome::Skipped(why));
    }
    let commit = Sample::of_commit(run.workspace);
    let packages = mutants::packages(run.workspace)?;
    let Some(package) = packages.get(commit.index("package of mutants", packages.len())) else {
        return Ok(Outcome::Skipped("there are no mutants".to_owned()));
    };
    let options = Options {
        seed: commit.0.into(),
        sample: SAMPLE,
        packages: vec![package.clone()],
        filter: None,
        list: false,
    };
    stream::line(&format!(
        "to repeat it: cargo xtask mutants --seed {} --sample {SAMPLE} --package {package}",
        options.seed
    ));
    let report = mutants::test(run.workspace, &options, stream::status)?;
    report.lines().iter().for_each(|line| stream::line(line));
    let missed = report.unexplained();
    let counts = Counts { passed: report.caught() as u64, failed: missed.len() as u64, skipped: 0 };
    if missed.len() <= MAX_MISSED {
        return Ok(Outcome::Passed(Counts { failed: 0, ..counts }));
    }
    // Missed mutants are not listed as failed tests, because the line printed above has the command
    // that repeats them.
    let why = format!("{} mutants were missed: {}", missed.len(), missed.join("; "));
    Ok(Outcome::Failed(counts, Failure { why, tests: Vec::new() }))
}
