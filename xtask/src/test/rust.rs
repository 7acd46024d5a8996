//! The test programs of the workspace, one after the other.

use super::{Outcome, Run, stream};
use crate::cargo::Package;
use crate::programs::{self, Program};
use anyhow::Result;
use std::process::Command;

/// For how long plugins come and go under the threads of the stress test; a few seconds unless set.
const STRESS_SECONDS: &str = "CROSSDOCK_STRESS_SECONDS";
/// In the tier that runs everything.
const STRESS_SECONDS_OF_ALL: &str = "60";

/// All of them but those of the step `skew`.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let programs = programs::tests(run.workspace, run.release, |package| !super::skew::is_its(package))?;
    let seconds = std::env::var(STRESS_SECONDS).ok();
    let seconds = seconds.or_else(|| (!run.tier.is_short()).then(|| STRESS_SECONDS_OF_ALL.to_owned()));
    let variables: Vec<_> = seconds.map(|seconds| (STRESS_SECONDS, seconds)).into_iter().collect();
    run.programs(&programs, &variables)
}

impl Run<'_> {
    /// The test programs of packages.
    pub fn tests_of(&self, wanted: impl Fn(&Package) -> bool) -> Result<Vec<Program>> {
        programs::tests(self.workspace, self.release, wanted)
    }

    /// Runs them one after another, with these variables, whatever becomes of the ones before.
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
