//! Whether a crate's own tests find small faults: a few of one crate.

use super::sample::Sample;
use super::{Counts, Failure, Outcome, Run, stream};
use crate::mutants::{self, Options};
use anyhow::Result;

/// How many of them.
const SAMPLE: usize = 8;
/// What is aimed at is 95 of 100. One that is missed among so few says nothing against that, and is named; `cargo xtask mutants` is
/// stricter.
const MAY_BE_MISSED: usize = 1;

/// Only where everything runs; skipped where cargo-mutants is not installed. The commit selects the crate and the mutants. All
/// are of one crate: before the first mutant of a crate everything that it stands on is built, and its tests run once.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    if run.tier.is_short() {
        return Ok(Outcome::Skipped("only with --all: each mutant is built and tested".to_owned()));
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
        "to see the same again: cargo xtask mutants --seed {} --sample {SAMPLE} --package {package}",
        options.seed
    ));
    let report = mutants::test(run.workspace, &options, stream::status)?;
    report.lines().iter().for_each(|line| stream::line(line));
    let missed = report.unexplained();
    let counts = Counts { passed: report.caught() as u64, failed: missed.len() as u64, skipped: 0 };
    if missed.len() <= MAY_BE_MISSED {
        return Ok(Outcome::Passed(Counts { failed: 0, ..counts }));
    }
    // No name of a test: the line above says how to see it again.
    let why = format!("{} mutants were missed: {}", missed.len(), missed.join("; "));
    Ok(Outcome::Failed(counts, Failure { why, tests: Vec::new() }))
}
