//! `cargo xtask seeds`: runs test programs on the simulated CUDA driver with many seeds.

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

/// Options of `cargo xtask seeds`. Each test program of the packages runs once for each seed.
#[derive(clap::Args)]
pub struct Options {
    /// The number of seeds
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u64,
    /// The package whose tests run; may be given more than once
    #[arg(long = "package", short = 'p', value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
    /// Run only tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Remove this function from the driver; may be given more than once
    #[arg(long, value_name = "FUNCTION")]
    lack: Vec<String>,
    /// The number of programs that run at the same time [default: the number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// Runs the programs. Stops at the first failure, and prints the command that repeats the failure.
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
            println!("seed {} fails; to repeat it:", options.first + (at / programs.len()) as u64);
            println!("{}", failure.replay);
            Ok(ExitCode::FAILURE)
        }
    }
}

fn progress(done: usize, runs: usize) {
    if done.is_multiple_of(runs.div_ceil(20)) || done == runs {
        // The error is ignored, because standard error may be closed.
        drop(writeln!(std::io::stderr(), "{done} of {runs} runs"));
    }
}

fn one(program: &Program, seed: u64, driver: &Path, filter: Option<&str>) -> Option<Failure> {
    let variables = [(SEED, seed.to_string()), ("LD_LIBRARY_PATH", driver.display().to_string())];
    program.run(&variables, filter.as_slice())
}
