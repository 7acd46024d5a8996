//! `cargo xtask soak`: injects every fault once, then runs stress tests and fuzz targets for hours
//! with new seeds.

use crate::cargo::{Workspace, cargo, run as run_command};
use crate::fuzz::Fuzzer;
use crate::programs::{self, Program, TARGETS};
use crate::{nightly, seeds, sim_cuda};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The stress test programs, which belong to the package that tests several crates together.
const STRESS: [&str; 2] = ["stress", "stress_plugins"];
/// The test programs that inject faults. Each entry has the program's name, the filter that selects
/// its tests, and whether the faults are injected into the simulated driver.
const FAULTS: [(&str, &str, bool); 5] = [
    ("cpu", "failures::", false),
    ("devices", "decoder_failures::", false),
    ("cpu", "linked::", false),
    ("cpu", "bad_input::", false),
    ("cuda_faults", "", true),
];
const PACKAGE: &str = "crossdock-tests";
/// The duration of one run of a stress test or a fuzz target.
const MAX_RUN: Duration = Duration::from_secs(5 * 60);
/// The number of rounds in the time of [`MAX_RUN`], for the stress test without a time limit. On a
/// small machine, these rounds take about as long as one run of another test.
const ROUNDS: u64 = 300;
/// The minimum duration of a run. If less time remains, no run is started.
const MIN_RUN: Duration = Duration::from_secs(1);

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub struct Options {
    /// The total time, without builds and injected faults; stress tests and fuzzing each get half
    /// of it, or all of it if only one of the two runs
    #[arg(long, value_name = "HOURS", default_value_t = 8.0)]
    hours: f64,
    /// The first seed [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Run only these parts; may be given more than once
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
}

/// The parts of a run, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Every injected fault once; takes most of an hour on two processors
    Faults,
    /// Stress tests with 64 threads, which load and unload plugins
    Stress,
    /// Fuzz targets, if there is a nightly toolchain
    Fuzz,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Runs the selected parts. Stops at the first failure.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let all = Duration::try_from_secs_f64(options.hours * 3600.0).with_context(|| {
        format!("--hours {}: expected a number of hours, such as 8 or 0.5", options.hours)
    })?;
    let mut seed = options.seed.map_or_else(clock, Ok)?;
    run_command(cargo().current_dir(&workspace.root).arg("build").args(TARGETS))?;
    let driver = sim_cuda::lay_out(workspace, &[])?;
    let programs = programs::tests(workspace, false, |package| package.name == PACKAGE)?;
    let faults = FAULTS.map(|(name, tests, cuda)| Ok((named(&programs, name)?, tests, cuda)));
    let faults = faults.into_iter().collect::<Result<Vec<_>>>()?;
    let programs = STRESS.iter().map(|name| named(&programs, name)).collect::<Result<Vec<_>>>()?;
    let fuzzer = if options.wants(Part::Fuzz) { fuzzer(workspace)? } else { None };
    ensure!(fuzzer.is_some() || options.only != [Part::Fuzz], "nothing was run");
    let timed = u32::from(options.wants(Part::Stress)) + u32::from(fuzzer.is_some());
    let share = all / timed.max(1);
    let begin = Instant::now();
    let passed = (!options.wants(Part::Faults) || faulted(&faults, &driver))
        && (!options.wants(Part::Stress) || stressed(&programs, &driver, Share::begin(share), &mut seed))
        && match &fuzzer {
            Some(fuzzer) => fuzzed(fuzzer, Share::begin(share), &mut seed)?,
            None => true,
        };
    if !passed {
        return Ok(ExitCode::FAILURE);
    }
    println!("nothing failed in {:.2} h", hours(begin.elapsed()));
    Ok(ExitCode::SUCCESS)
}

/// Builds the fuzz targets. Prints a message and returns `None` if there is no nightly toolchain.
fn fuzzer(workspace: &Workspace) -> Result<Option<Fuzzer>> {
    let fuzzer = nightly::host()?
        .map(|host| Fuzzer::build(workspace, &host, Fuzzer::targets(workspace)?))
        .transpose()?;
    if fuzzer.is_none() {
        say("skipped: fuzzing: no nightly toolchain (rustup toolchain add nightly)");
    }
    Ok(fuzzer)
}

fn named<'a>(programs: &'a [Program], name: &str) -> Result<&'a Program> {
    let program = programs.iter().find(|program| program.name == name);
    program.with_context(|| format!("expected the test {name} in {PACKAGE}"))
}

/// Runs the programs with a fault at each possible place. Returns whether all passed.
fn faulted(programs: &[(&Program, &str, bool)], driver: &Path) -> bool {
    programs.iter().all(|(program, tests, cuda)| {
        let mut variables = vec![("CROSSDOCK_FAULTS", "all".to_owned())];
        variables.extend(cuda.then(|| ("LD_LIBRARY_PATH", driver.display().to_string())));
        say(&format!("{} {tests}, with every fault", program.name));
        let failure = program.run(&variables, &[tests]);
        if let Some(failure) = &failure {
            println!("{}\nto repeat it:\n{}", failure.output, failure.replay);
        }
        failure.is_none()
    })
}

/// A share of the total time.
struct Share {
    begin: Instant,
    length: Duration,
}

impl Share {
    fn begin(length: Duration) -> Self {
        Self { begin: Instant::now(), length }
    }

    /// The time for each of the next `runs` runs, which run one after another. `None` if the share
    /// is used up.
    fn next(&self, runs: u32) -> Option<Duration> {
        let remaining = self.length.saturating_sub(self.begin.elapsed()) / runs;
        (remaining >= MIN_RUN).then(|| remaining.min(MAX_RUN))
    }

    fn so_far(&self) -> String {
        format!("{:.2} of {:.2} h", hours(self.begin.elapsed()), hours(self.length))
    }
}

/// Runs the programs alternately without and with the simulated driver. Returns whether all passed.
fn stressed(programs: &[&Program], driver: &Path, share: Share, seed: &mut u32) -> bool {
    let turns =
        [false, true].into_iter().flat_map(|cuda| programs.iter().map(move |program| (program, cuda)));
    for (program, cuda) in turns.collect::<Vec<_>>().into_iter().cycle() {
        let Some(length) = share.next(1) else { break };
        let seed = next(seed);
        let variables = variables(seed, length, cuda.then_some(driver));
        let over = if cuda { " over the simulated CUDA driver" } else { "" };
        say(&format!("{}, {}{over}: seed {seed}", share.so_far(), program.name));
        if let Some(failure) = program.run(&variables, &["--nocapture"]) {
            println!("{}\nseed {seed} fails; to repeat it:\n{}", failure.output, failure.replay);
            return false;
        }
    }
    true
}

fn variables(seed: u32, length: Duration, driver: Option<&Path>) -> Vec<(&'static str, String)> {
    let rounds = (ROUNDS * length.as_secs()).div_ceil(MAX_RUN.as_secs());
    let mut variables = vec![
        ("CROSSDOCK_STRESS_SEED", seed.to_string()),
        ("CROSSDOCK_STRESS", rounds.to_string()),
        ("CROSSDOCK_STRESS_SECONDS", length.as_secs().to_string()),
    ];
    if let Some(driver) = driver {
        variables.push((seeds::SEED, seed.to_string()));
        variables.push(("LD_LIBRARY_PATH", driver.display().to_string()));
    }
    variables
}

/// Runs all fuzz targets in turn, in parallel on all processors. Returns whether there were no
/// findings.
fn fuzzed(fuzzer: &Fuzzer, share: Share, seed: &mut u32) -> Result<bool> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let rounds = fuzzer.targets.len().div_ceil(jobs).max(1) as u32;
    while let Some(left) = share.next(rounds) {
        let seconds = left.as_secs();
        let seed = next(seed);
        say(&format!("{}, each fuzz target for {seconds} s: seed {seed}", share.so_far()));
        let runs = fuzzer.fuzz(&fuzzer.targets, seconds, seed)?.into_iter();
        let findings: Vec<_> = runs.filter_map(|run| Some((run.target, run.outcome.err()?))).collect();
        findings.iter().for_each(|(target, what)| println!("{target}, seed {seed}: {what}"));
        if !findings.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

fn clock() -> Result<u32> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(now.as_secs() as u32)
}

/// Returns the next seed. It is never 0, because the fuzzer uses a random seed for 0.
fn next(seed: &mut u32) -> u32 {
    let this = (*seed).max(1);
    *seed = this.wrapping_add(1);
    this
}

fn say(line: &str) {
    // The error is ignored, because standard error may be closed.
    drop(writeln!(std::io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_runs_share_the_remaining_time() {
        let whole = Share::begin(Duration::from_secs(7200));
        assert_eq!(whole.next(1), Some(MAX_RUN));
        assert!(whole.next(60).is_some_and(|each| each <= Duration::from_secs(120)));
        assert_eq!(Share::begin(Duration::from_millis(1500)).next(2), None);
    }

    #[test]
    fn next_seed_is_never_zero() {
        let mut seed = u32::MAX;
        assert_eq!([next(&mut seed), next(&mut seed), next(&mut seed)], [u32::MAX, 1, 2]);
    }
}
