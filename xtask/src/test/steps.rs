//! What each step runs.

use super::{Outcome, Step, asan, deny, fuzz, python, sim_cuda, stream};
use crate::cargo::{Workspace, cargo, run as run_command};
use crate::kernels;
use crate::programs::TARGETS;
use crate::tidy;
use anyhow::Result;
use std::process::Command;

/// For how long plugins come and go under the threads of the stress test; a few seconds unless set.
const STRESS_SECONDS: &str = "CROSSDOCK_STRESS_SECONDS";

/// Runs one step. An error is a failure of the step.
pub fn run(step: Step, workspace: &Workspace, release: bool) -> Result<Outcome> {
    let cargo_in_root = |arguments: &[&str]| {
        let mut command = cargo();
        command.current_dir(&workspace.root).args(arguments);
        command
    };
    let with_profile = |mut command: Command| {
        command.args(release.then_some("--release"));
        command
    };
    match step {
        Step::Fmt => Ok(Outcome::check(run_command(&mut cargo_in_root(&["fmt", "--all", "--check"])))),
        Step::Tidy => Ok(Outcome::check(tidy::run(workspace))),
        Step::Clippy => Ok(Outcome::check(run_command(
            cargo_in_root(&["clippy", "--workspace", "--all-targets"]).args(["--", "-D", "warnings"]),
        ))),
        Step::Deny => deny::run(workspace),
        Step::Kernels => Ok(match kernels::check(workspace) {
            Ok(Some(why)) => Outcome::Skipped(why),
            outcome => Outcome::check(outcome.map(drop)),
        }),
        Step::Build => Ok(Outcome::check(run_command(with_profile(cargo_in_root(&["build"])).args(TARGETS)))),
        Step::Rust => {
            let mut command = with_profile(cargo_in_root(&["test"]));
            // Where the same tests run in other steps, they are for other things.
            command.env(STRESS_SECONDS, std::env::var(STRESS_SECONDS).unwrap_or_else(|_| "60".to_owned()));
            stream::cargo_test(command.args(TARGETS).arg("--no-fail-fast"))
        }
        Step::SimCuda => sim_cuda::run(workspace, release),
        Step::Doc => {
            let mut command =
                with_profile(cargo_in_root(&["test", "--workspace", "--doc", "--no-fail-fast"]));
            stream::cargo_test(&mut command)
        }
        Step::StableAbi => stream::cargo_test(&mut with_profile(cargo_in_root(&[
            "test",
            "--package",
            "crossdock-plugin-api",
            "--features",
            "stable-abi",
            "--test",
            "stable_abi",
        ]))),
        Step::Python => python::run(workspace, &workspace.built(release).join("crossdock")),
        Step::Asan => asan::run(workspace),
        Step::Fuzz => fuzz::run(workspace),
    }
}
