//! Runs the test programs of the workspace one after another.

use super::{Outcome, Run, stream};
use crate::cargo::Package;
use crate::programs::{self, Program};
use anyhow::Result;
use std::process::Command;

/// The environment variable with the duration of the stress test that loads and unloads plugins.
/// The default duration is a few seconds.
const STRESS_SECONDS: &str = "CROSSDOCK_STRESS_SECONDS";
/// The value of `STRESS_SECONDS` with --all.
const STRESS_SECONDS_OF_ALL: &str = "60";

/// Runs all test programs except the programs of the step `skew`.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let programs = programs::tests(run.workspace, run.release, |package| !super::skew::is_its(package))?;
    let seconds = std::env::var(STRESS_SECONDS).ok();
    let seconds = seconds.or_else(|| (!run.tier.is_short()).then(|| STRESS_SECONDS_OF_ALL.to_owned()));
    let variables: Vec<_> = seconds.map(|seconds| (STRESS_SECONDS, seconds)).into_iter().collect();
    run.programs(&programs, &variables)
}

impl Run<'_> {
    /// The test programs of the selected packages.
    pub fn tests_of(&self, wanted: impl Fn(&Package) -> bool) -> Result<Vec<Program>> {
        programs::tests(self.workspace, self.release, wanted)
    }

    /// Runs the programs one after another with these variables, also after failures.
    pub fn programs(&self, programs: &[Program], variables: &[(&str, String)]) -> Result<Outcome> {
        let mut all = Outcome::Passed(Default::default());
        for program in programs {
            stream::line(&format!("{} of {}", program.name, program.package));
            let mut command = Command::new(&program.path);
            self.tier.tell(&mut command);
            command.current_dir(&program.folder).args(self.filter.as_slice());
            command.envs(variables.iter().map(|(name, value)| (name, value)));
            all = all.and(stream::cargo_test(&mut command)?);
        }
        Ok(all)
    }
}
