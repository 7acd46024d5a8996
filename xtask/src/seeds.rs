//! `cargo xtask seeds`: test programs over the simulated CUDA driver, under many seeds.

use crate::cargo::Workspace;
use crate::programs::{self, Failure, Program};
use crate::sim_cuda;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const SEED: &str = "CROSSDOCK_SIM_CUDA_SEED";

/// What `cargo xtask seeds` takes. Every test program of the packages runs once for each seed.
#[derive(clap::Args)]
pub struct Options {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// Whose tests
    #[arg(long = "package", short = 'p', value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
    /// Only tests whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Leave this function out of the driver; may be given more than once
    #[arg(long, value_name = "FUNCTION")]
    lack: Vec<String>,
    /// As many programs at a time; otherwise one for each core
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// Stops at the first failure, and says how to see it again.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let driver = sim_cuda::lay_out(workspace, &options.lack)?;
    if let Some(unknown) = options.packages.iter().find(|name| !workspace.has(name)) {
        bail!("there is no package '{unknown}' in the workspace");
    }
    let programs = programs::tests(workspace, false, |package| options.packages.contains(&package.name))?;
    if programs.is_empty() {
        bail!("{} have no test programs", options.packages.join(", "));
    }
    let runs = programs.len() * usize::try_from(options.seeds)?;
    let jobs =
        options.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let first_failure: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= runs {
                return;
            }
            let seed = options.first + (at / programs.len()) as u64;
            let outcome = one(&programs[at % programs.len()], seed, &driver, options.filter.as_deref());
            if let Some(failure) = outcome {
                failed.store(true, Ordering::Relaxed);
                let mut first = first_failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if first.as_ref().is_none_or(|(known, _)| at < *known) {
                    *first = Some((at, failure));
                }
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, runs);
        }
    };
    std::thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let failure = first_failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let last = options.first + options.seeds.saturating_sub(1);
    match failure {
        None => {
            println!("{} programs passed under seeds {} to {last}", programs.len(), options.first);
            Ok(ExitCode::SUCCESS)
        }
        Some((at, failure)) => {
            println!("{}", failure.output);
            println!("seed {} fails; to see it again:", options.first + (at / programs.len()) as u64);
            println!("{}", failure.replay);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn progress(done: usize, runs: usize) {
    if done.is_multiple_of(runs.div_ceil(20)) || done == runs {
        // Nobody is left to tell when stderr is closed.
        drop(writeln!(std::io::stderr(), "{done} of {runs} runs"));
    }
}

fn one(program: &Program, seed: u64, driver: &Path, filter: Option<&str>) -> Option<Failure> {
    let variables = [(SEED, seed.to_string()), ("LD_LIBRARY_PATH", driver.display().to_string())];
    program.run(&variables, filter.as_slice())
}
