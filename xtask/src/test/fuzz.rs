//! Runs each fuzz target for a short time.

use super::sample::Tier;
use super::{Counts, Failure, Outcome, Run, stream};
use crate::fuzz::Fuzzer;
use crate::nightly;
use anyhow::Result;

const SECONDS: u64 = 20;
/// The number of targets in the short tier.
const SHORT: usize = 2;
/// The seed is fixed, so that a new finding is caused by a change of the code and not by new random
/// inputs.
const SEED: u32 = 1;

/// Runs the targets. Skipped if there is no nightly toolchain.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let Some(host) = nightly::host()? else {
        return Ok(Outcome::Skipped("no nightly toolchain".to_owned()));
    };
    let mut targets = Fuzzer::targets(run.workspace)?;
    if let Tier::Short(sample) = run.tier {
        let first = sample.index("fuzz targets", targets.len());
        targets.rotate_left(first);
        targets.truncate(SHORT);
    }
    let fuzzer = Fuzzer::build(run.workspace, &host, targets)?;
    let (mut counts, mut failure) = (Counts::default(), Failure::from(String::new()));
    for fuzzed in fuzzer.fuzz(&fuzzer.targets, SECONDS, SEED)? {
        match fuzzed.outcome {
            Ok(inputs) => {
                stream::line(&format!("{}: {inputs} inputs in {SECONDS} s", fuzzed.target));
                counts.passed += 1;
            }
            Err(what) => {
                stream::line(&format!("{}: {what}", fuzzed.target));
                counts.failed += 1;
                failure.tests.push(fuzzed.target);
            }
        }
    }
    if failure.tests.is_empty() {
        return Ok(Outcome::Passed(counts));
    }
    // The output already contains the command that repeats the finding.
    failure.why = format!("findings in {}", std::mem::take(&mut failure.tests).join(", "));
    Ok(Outcome::Failed(counts, failure))
}
