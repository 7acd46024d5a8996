//! `crossdock verify`: checks any plugin against the rules of `crossdock.h`.
//!
//! Each case runs in a process of its own (`child`), which the command starts and waits for
//! (`process`), after the cases that it depends on (`schedule`). The results are reported as text,
//! JSON or JUnit XML (`report`, `junit`).
//!
//! A case gets the plugin in a host that observes it (`watch`), objects whose releases are counted
//! (`counted_objects`), and encoded arrays (`encoded_trees`). It can run code during the plugin's
//! calls to the host (`host_calls`).

mod buffer_ranges;
mod case;
mod cases;
mod child;
mod context;
mod counted_objects;
mod coverage;
mod encoded_trees;
mod guard;
mod host_calls;
mod ipc;
mod junit;
mod leak;
mod malformed;
mod process;
mod random;
mod raw;
mod report;
mod round_trip;
mod schedule;
mod seeds;
mod subject;
mod tables;
mod tensors;
mod test_io;
mod verdict;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use crossdock::api::{Device, abi};
use crossdock::memory::Backend;

use crate::output::{Failure, write_output};
use crate::{options, terminal};
use case::{Case, Run};
use report::{Report, ReportOptions};
use seeds::Seeds;

const HELP: &str = "\
Each case checks one rule of crossdock.h in a process of its own. A case passes, fails, crashes, exits, times out, or is skipped
with a reason. A case is skipped if a case that it depends on did not pass. --list shows all cases and their rules.
Columns, malformed inputs and mutations are random. Cases that use random numbers run with several seeds, until the run has taken
ten seconds or twice the time of the first seed, whichever is longer. For each failure, the command that repeats the case with its
seed is printed. Formats and encodings that no case could exercise are reported with the input that they need.

Exit status: 0 if all cases passed or were skipped; 1 if a case did not pass, or, with --strict, if anything was not exercised; 2
for wrong usage.";

#[derive(Args)]
#[command(after_help = HELP)]
pub struct Verify {
    /// The plugin's file
    #[arg(value_name = "PLUGIN", required_unless_present = "list")]
    plugin: Option<PathBuf>,
    /// A device to run on: cpu, cuda, cuda:N. May be given several times [default: cpu, and cuda:0
    /// if available]
    #[arg(long = "device", value_name = "DEVICE", value_parser = options::parse_device)]
    devices: Vec<Device>,
    /// The only seed, or with --seeds the first one [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The number of seeds to try, one after another [default: at most 8, limited by time; 1 with
    /// --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Exits with status 1 if anything that the plugin offers was not exercised
    #[arg(long, conflicts_with = "cases")]
    strict: bool,
    /// Runs only the case of this name, or the cases whose names contain the pattern or match it,
    /// where * stands for any text. May be given several times
    #[arg(long = "case", value_name = "PATTERN")]
    cases: Vec<String>,
    /// Lists the cases and their rules, and runs none
    #[arg(long)]
    list: bool,
    /// The time limit of one case
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The number of cases that run at the same time [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// A file of a format that the plugin reads, or an encoded array (.cdenc) with nodes of its
    /// encodings; cases read, decode and mutate it. Or a URI that the plugin opens, whose content
    /// does not change. May be given several times
    #[arg(long = "sample", value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Prints the results as JSON
    #[arg(long)]
    json: bool,
    /// Writes the results to FILE as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Runs this one case in this process and writes the result to the socket that is standard
    /// input
    #[arg(long, hide = true)]
    alone: Option<String>,
}

impl Verify {
    pub fn run(self) -> Result<(), Failure> {
        // The command loads the plugin without applying the plugin policy.
        options::not_for_privileged("`crossdock verify` is refused")?;
        if let Some(name) = &self.alone {
            return self.run_alone(name);
        }
        let cases = self.selected_cases()?;
        if self.list {
            return write_output(&report::list(&cases, self.json));
        }
        let plugin = self.plugin()?;
        let samples = self.samples.iter().filter(|sample| !context::is_uri(sample));
        for file in std::iter::once(plugin).chain(samples) {
            if !file.is_file() {
                return Err(usage_error(format!("'{}' is not a file", file.display())));
            }
        }
        let report = self.run_cases(plugin, cases)?;
        if let Some(file) = &self.junit {
            std::fs::write(file, junit::xml(&report))
                .map_err(|error| usage_error(format!("cannot write '{}': {error}", file.display())))?;
        }
        report.finish()
    }

    /// Runs the cases with one seed after another.
    fn run_cases(&self, plugin: &Path, cases: Vec<&'static Case>) -> Result<Report, Failure> {
        let seeds = Seeds::new(self.seed, self.seeds);
        let mut runs: Vec<_> = cases.into_iter().flat_map(|case| self.runs_of(case, seeds.first())).collect();
        let limit = Duration::from_secs(self.timeout);
        let jobs = self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, |n| n.get()),
            |jobs| jobs as usize,
        );
        let starter = process::Starter::new(plugin, self.timeout, &self.samples);
        let options = ReportOptions { is_complete: self.cases.is_empty(), is_strict: self.strict };
        let mut report = Report::new(plugin, self.json, options);
        let progress = terminal::Progress::show_count();
        let listener = progress.as_ref().map(terminal::Progress::listener);
        let (mut n_done, mut n_runs) = (0, 0);
        let (started, mut first, mut n_rounds, mut seed) = (Instant::now(), Duration::ZERO, 0, seeds.first());
        loop {
            runs.iter_mut().for_each(|run| run.seed = seed);
            report.begin(seed);
            n_runs += runs.len() as u64;
            let mut add = |result| {
                report.add(result);
                n_done += 1;
                listener.iter().for_each(|listener| listener(n_done, n_runs));
            };
            schedule::run(runs, jobs, &|run| starter.run(run, limit), &mut add)?;
            n_rounds += 1;
            if n_rounds == 1 {
                first = started.elapsed();
            }
            runs = report.runs_for_next_seed();
            match seeds.next(n_rounds, first, started.elapsed()) {
                Some(next) if !runs.is_empty() => seed = next,
                _ => return Ok(report),
            }
        }
    }

    fn plugin(&self) -> Result<&PathBuf, Failure> {
        self.plugin.as_ref().ok_or_else(|| usage_error("expected a plugin's file".into()))
    }

    fn selected_cases(&self) -> Result<Vec<&'static Case>, Failure> {
        let is_selected =
            |case: &&Case| self.cases.is_empty() || self.cases.iter().any(|pattern| is_match(pattern, case));
        let selected: Vec<_> = cases::all().filter(is_selected).collect();
        if selected.is_empty() {
            let patterns = self.cases.join("' or '");
            return Err(usage_error(format!("no case matches '{patterns}'; --list shows all cases")));
        }
        Ok(selected)
    }

    /// Returns one run for each device if the case depends on devices, otherwise a single run.
    fn runs_of(&self, case: &'static Case, seed: u64) -> Vec<Run> {
        let run = |device: Option<Device>| {
            let on_cuda = device.is_some_and(|device| device.r#type == abi::DEVICE_CUDA);
            Run { case, device, seed, is_exclusive: on_cuda && cases::is_exclusive(case) }
        };
        if !case.on_devices {
            return vec![run(None)];
        }
        let mut devices = self.devices.clone();
        if devices.is_empty() {
            devices = vec![Device::CPU];
            devices.extend(Backend::builder().build().cuda().is_ok().then(|| Device::cuda(0)));
        }
        devices.into_iter().map(|device| run(Some(device))).collect()
    }

    fn run_alone(&self, name: &str) -> Result<(), Failure> {
        let case = cases::find(name).ok_or_else(|| usage_error(format!("there is no case '{name}'")))?;
        let device = self.devices.first().copied().unwrap_or(Device::CPU);
        let limit = Duration::from_secs(self.timeout);
        Ok(child::run(case, self.plugin()?, device, self.seed.unwrap_or(1), &self.samples, limit)?)
    }
}

/// Whether `--case PATTERN` selects the case. A pattern that is a case's whole name, or a former
/// name, selects only that case, although other names may contain it.
fn is_match(pattern: &str, case: &Case) -> bool {
    match cases::find(pattern) {
        Some(named) => named.name == case.name,
        None => cases::names(case).any(|name| case::matches(pattern, name)),
    }
}

fn usage_error(message: String) -> Failure {
    Failure::Host(crossdock::Error::Usage(message))
}
