//! `cargo xtask soak`: every injected fault once, then hours of stress, and hours of fuzzing, with new seeds all along.

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

/// The test programs that are stressed with, of the package of all that spans several crates.
const STRESS: [&str; 2] = ["stress", "stress_plugins"];
/// Those that inject faults, which of their tests, and whether the simulated driver is what fails.
const FAULTS: [(&str, &str, bool); 5] = [
    ("cpu", "failures::", false),
    ("devices", "decoder_failures::", false),
    ("cpu", "linked::", false),
    ("cpu", "bad_input::", false),
    ("cuda_faults", "", true),
];
const PACKAGE: &str = "crossdock-tests";
/// How long one stress test runs, and one fuzz target, before a new seed.
const LONGEST_RUN: Duration = Duration::from_secs(5 * 60);
/// So many rounds take the stress test that counts rounds about as long, on a small machine.
const ROUNDS: u64 = 300;
/// Less than this is not worth a seed.
const SHORTEST_RUN: Duration = Duration::from_secs(1);

/// What `cargo xtask soak` takes.
#[derive(clap::Args)]
pub struct Options {
    /// For how long in all, without the builds and the faults: half of it stress, half of it fuzzing, or all of it the one that
    /// is run
    #[arg(long, value_name = "HOURS", default_value_t = 8.0)]
    hours: f64,
    /// The first seed; others follow it. Without it, one that the clock gives
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Run these parts only; may be given more than once
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
}

/// In the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Every injected fault once; most of an hour on two processors
    Faults,
    /// 64 threads, and plugins that come and go
    Stress,
    /// Bytes of anybody's making, where there is a nightly toolchain
    Fuzz,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Stops at the first failure.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let all = Duration::try_from_secs_f64(options.hours * 3600.0)
        .with_context(|| format!("--hours {}: expected a number of hours, as 8 or 0.5", options.hours))?;
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

/// `None` where there is no toolchain for it, which is said.
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
    let found = programs.iter().find(|program| program.name == name);
    found.with_context(|| format!("expected the test {name} in {PACKAGE}"))
}

/// Whether every program passed with a fault at each place where there can be one.
fn faulted(programs: &[(&Program, &str, bool)], driver: &Path) -> bool {
    programs.iter().all(|(program, tests, cuda)| {
        let mut variables = vec![("CROSSDOCK_FAULTS", "all".to_owned())];
        variables.extend(cuda.then(|| ("LD_LIBRARY_PATH", driver.display().to_string())));
        say(&format!("{} {tests}, with every fault", program.name));
        let failure = program.run(&variables, &[tests]);
        if let Some(failure) = &failure {
            println!("{}\nto see it again:\n{}", failure.output, failure.replay);
        }
        failure.is_none()
    })
}

/// A part of the time.
struct Share {
    begin: Instant,
    length: Duration,
}

impl Share {
    fn begin(length: Duration) -> Self {
        Self { begin: Instant::now(), length }
    }

    /// How long each of the next `runs` may take, one after the other; `None` when the time is up.
    fn next(&self, runs: u32) -> Option<Duration> {
        let left = self.length.saturating_sub(self.begin.elapsed()) / runs;
        (left >= SHORTEST_RUN).then(|| left.min(LONGEST_RUN))
    }

    fn so_far(&self) -> String {
        format!("{:.2} of {:.2} h", hours(self.begin.elapsed()), hours(self.length))
    }
}

/// Whether every run passed: each program by itself, then each over the simulated driver, and so on.
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
            println!("{}\nseed {seed} fails; to see it again:\n{}", failure.output, failure.replay);
            return false;
        }
    }
    true
}

fn variables(seed: u32, length: Duration, driver: Option<&Path>) -> Vec<(&'static str, String)> {
    let rounds = (ROUNDS * length.as_secs()).div_ceil(LONGEST_RUN.as_secs());
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

/// Whether nothing was found: all targets take it in turns, as many at a time as there are processors.
fn fuzzed(fuzzer: &Fuzzer, share: Share, seed: &mut u32) -> Result<bool> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let rounds = fuzzer.targets.len().div_ceil(jobs).max(1) as u32;
    while let Some(left) = share.next(rounds) {
        let seconds = left.as_secs();
        let seed = next(seed);
        say(&format!("{}, each fuzz target for {seconds} s: seed {seed}", share.so_far()));
        let found = fuzzer.fuzz(&fuzzer.targets, seconds, seed)?.into_iter();
        let found: Vec<_> = found.filter_map(|run| Some((run.target, run.outcome.err()?))).collect();
        found.iter().for_each(|(target, what)| println!("{target}, seed {seed}: {what}"));
        if !found.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

fn clock() -> Result<u32> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    Ok(now.as_secs() as u32)
}

/// Never 0, which is none to the fuzzer.
fn next(seed: &mut u32) -> u32 {
    let this = (*seed).max(1);
    *seed = this.wrapping_add(1);
    this
}

fn say(line: &str) {
    // Nobody is left to tell when stderr is closed.
    drop(writeln!(std::io::stderr(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_follow_one_another_share_what_is_left_and_none_begins_at_the_end() {
        let whole = Share::begin(Duration::from_secs(7200));
        assert_eq!(whole.next(1), Some(LONGEST_RUN));
        assert!(whole.next(60).is_some_and(|each| each <= Duration::from_secs(120)));
        assert_eq!(Share::begin(Duration::from_millis(1500)).next(2), None);
    }

    #[test]
    fn no_seed_is_the_one_that_the_fuzzer_takes_for_none() {
        let mut seed = u32::MAX;
        assert_eq!([next(&mut seed), next(&mut seed), next(&mut seed)], [u32::MAX, 1, 2]);
    }
}
