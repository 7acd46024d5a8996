//! Runs the steps.

use super::step::Step;
use super::{
    Outcome, Run, asan, avro, book, deny, engines, fuzz, mutants, object_store, parquet, python, release,
    rust, sim_cuda, skew, stream, vortex_writer,
};
use crate::cargo::cargo;
use crate::kernels;
use crate::programs::TARGETS;
use crate::tidy;
use anyhow::Result;
use std::process::Command;

/// Runs one step. An error is a failure of the step.
pub fn run(step: Step, run: &Run<'_>) -> Result<Outcome> {
    let cargo_in_root = |arguments: &[&str]| {
        let mut command = cargo();
        command.current_dir(&run.workspace.root).args(arguments);
        command
    };
    let with_profile = |mut command: Command| {
        command.args(run.release.then_some("--release"));
        command
    };
    match step {
        Step::Fmt => Ok(Outcome::check(stream::check(&mut cargo_in_root(&["fmt", "--all", "--check"])))),
        Step::Tidy => Ok(Outcome::check(tidy::run(run.workspace))),
        Step::Clippy => Ok(Outcome::check(stream::check(
            cargo_in_root(&["clippy", "--workspace", "--all-targets"]).args(["--", "-D", "warnings"]),
        ))),
        Step::Deny => deny::run(run.workspace),
        Step::Venv => Ok(Outcome::check(python::environment(run.workspace).map(drop))),
        Step::Build => {
            Ok(Outcome::check(stream::check(with_profile(cargo_in_root(&["build"])).args(TARGETS))))
        }
        Step::Rust => rust::run(run),
        Step::SimCuda => sim_cuda::run(run),
        Step::Doc => {
            let mut command =
                with_profile(cargo_in_root(&["test", "--workspace", "--doc", "--no-fail-fast"]));
            stream::cargo_test(command.arg("--").args(run.filter.as_slice()))
        }
        Step::Book => book::run(run),
        Step::StableAbi | Step::Skew if run.tier.is_short() && skew::is_recorded(run.workspace)? => {
            Ok(Outcome::Skipped(skew::unchanged()))
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
        Step::Skew => skew::run(run),
        Step::Python => python::run(run),
        Step::ObjectStore if run.tier.is_short() => Ok(Outcome::Skipped(
            "the plugin object-store has many dependencies, and is tested with --all".to_owned(),
        )),
        Step::ObjectStore => object_store::run(run),
        Step::VortexWriter if run.tier.is_short() => Ok(Outcome::Skipped(
            "the plugin vortex-writer has many dependencies, and is tested with --all".to_owned(),
        )),
        Step::VortexWriter => vortex_writer::run(run),
        Step::Parquet if run.tier.is_short() => Ok(Outcome::Skipped(
            "the plugin parquet has many dependencies, and is tested with --all".to_owned(),
        )),
        Step::Parquet => parquet::run(run),
        Step::Avro if run.tier.is_short() => Ok(Outcome::Skipped(
            "the example avro has many dependencies, and is tested with --all".to_owned(),
        )),
        Step::Avro => avro::run(run),
        Step::Engines if run.tier.is_short() => Ok(Outcome::Skipped(
            "DataFusion, Ray and Dask have many dependencies, and are tested with --all".to_owned(),
        )),
        Step::Engines => engines::run(run),
        Step::Wheel => Ok(Outcome::check(python::wheel(run.workspace))),
        Step::Release if run.tier.is_short() => Ok(Outcome::Skipped(
            "a release is built with optimisation, which takes minutes, and is tested with --all".to_owned(),
        )),
        Step::Release => release::run(run),
        Step::Asan => asan::run(run),
        Step::Fuzz => fuzz::run(run),
        Step::Mutants => mutants::run(run),
        Step::Kernels if run.tier.is_short() => Ok(Outcome::Skipped(
            "the step tidy compares the images with the record of their sources".to_owned(),
        )),
        Step::Kernels => Ok(match kernels::check(run.workspace) {
            Ok(Some(why)) => Outcome::Skipped(why),
            outcome => Outcome::check(outcome.map(drop)),
        }),
    }
}
