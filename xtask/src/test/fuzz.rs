//! Each fuzz target, for a little while.

use super::{Counts, Outcome};
use crate::cargo::Workspace;
use crate::fuzz::Fuzzer;
use crate::nightly;
use anyhow::Result;

const SECONDS: u64 = 20;
/// The same inputs for everybody, so that what one change brings up is not another one's.
const SEED: u32 = 1;

/// Skipped where there is no nightly toolchain.
pub fn run(workspace: &Workspace) -> Result<Outcome> {
    let Some(host) = nightly::host()? else {
        return Ok(Outcome::Skipped("no nightly toolchain".to_owned()));
    };
    let fuzzer = Fuzzer::build(workspace, &host)?;
    let (mut counts, mut found) = (Counts::default(), Vec::new());
    for run in fuzzer.fuzz(&fuzzer.targets, SECONDS, SEED)? {
        match run.outcome {
            Ok(inputs) => {
                println!("{}: {inputs} inputs in {SECONDS} s", run.target);
                counts.passed += 1;
            }
            Err(what) => {
                println!("{}: {what}", run.target);
                counts.failed += 1;
                found.push(run.target);
            }
        }
    }
    if found.is_empty() {
        return Ok(Outcome::Passed(counts));
    }
    Ok(Outcome::Failed(counts, format!("found something: {}", found.join(", "))))
}
