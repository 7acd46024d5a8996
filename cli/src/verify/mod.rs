//! `crossdock verify`: the rules of `crossdock.h` as cases, against any plugin.
//!
//! Each case is run by a process of its own (`child`), which the command starts and waits for (`process`), in an order in
//! which a rule comes after those that it stands on (`schedule`). What became of them is told in three ways (`report`).

mod case;
mod cases;
mod child;
mod coverage;
mod guard;
mod inside;
mod junit;
mod kept;
mod lent;
mod lies;
mod places;
mod process;
mod random;
mod raw;
mod report;
mod schedule;
mod seeds;
mod streams;
mod subject;
mod tables;
mod tensors;
mod tour;
mod trees;
mod verdict;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use crossdock::api::{Device, abi};
use crossdock::memory::Backend;

use crate::answer::{Failure, answer};
use crate::{options, terminal};
use case::{Case, Run};
use report::{Demands, Report};
use seeds::Seeds;

const HELP: &str = "\
Each case holds the plugin to one rule of crossdock.h, in a process of its own: it passes, fails, crashes, exits, takes too long,
or is skipped and says why. A case whose ground failed is skipped: mend that one first. --list shows all cases with their rules.
Columns, lies and mutations come from a seed. Cases that use it run with several, one after another, for as long as a run with one
takes, or ten seconds; every failure shows the command that runs that case alone again, with its seed. What the plugin offers and no
case made work is told as not exercised, with what to give.

Exit status: 0 all passed or were skipped, 1 any did not, or with --strict anything was not exercised, 2 wrong usage.";

#[derive(Args)]
#[command(after_help = HELP)]
pub struct Verify {
    /// The plugin's file
    #[arg(value_name = "PLUGIN", required_unless_present = "list")]
    plugin: Option<PathBuf>,
    /// A device to run on, beside others: cpu, cuda, cuda:N [default: cpu, and cuda:0 where it is there]
    #[arg(long = "device", value_name = "DEVICE", value_parser = options::parse_device)]
    devices: Vec<Device>,
    /// What columns, lies and mutations are made from: this seed alone, or with --seeds the first [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many seeds to try, one after another [default: as many as there is time for, 8 at most; 1 with --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Ends with 1 too where anything that the plugin offers was not exercised
    #[arg(long, conflicts_with = "cases")]
    strict: bool,
    /// Runs the case of this name, else those that this is a part of, or with * in the place of anything; and no others
    #[arg(long = "case", value_name = "PATTERN")]
    cases: Vec<String>,
    /// Lists the cases and their rules, and runs none
    #[arg(long)]
    list: bool,
    /// How long one case may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// How many cases run at once [default: as many as the machine has processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// A file of a format that the plugin reads, or an encoded array (.cdenc) with nodes of its encodings: read, decoded, and
    /// changed
    #[arg(long = "sample", value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Prints the results as JSON
    #[arg(long)]
    json: bool,
    /// Writes the results into FILE too, as JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Runs this one case in this process and tells whoever started it on standard input
    #[arg(long, hide = true)]
    alone: Option<String>,
}

impl Verify {
    pub fn run(self) -> Result<(), Failure> {
        // It loads what it is given, whatever the policy says.
        options::not_for_privileged("`crossdock verify` is refused")?;
        if let Some(name) = &self.alone {
            return self.run_alone(name);
        }
        let chosen = self.chosen()?;
        if self.list {
            return answer(&report::list(&chosen, self.json));
        }
        let plugin = self.plugin()?;
        for file in std::iter::once(plugin).chain(&self.samples) {
            if !file.is_file() {
                return Err(wrong(format!("there is no file '{}'", file.display())));
            }
        }
        let seeds = Seeds::new(self.seed, self.seeds);
        let mut runs: Vec<_> =
            chosen.into_iter().flat_map(|case| self.runs_of(case, seeds.first())).collect();
        let limit = Duration::from_secs(self.timeout);
        let jobs = self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, |n| n.get()),
            |jobs| jobs as usize,
        );
        let command = process::Starter::new(plugin, self.timeout, &self.samples);
        let mut report =
            Report::new(plugin, self.json, Demands { all: self.cases.is_empty(), strict: self.strict });
        let progress = terminal::Progress::of_number();
        let listener = progress.as_ref().map(terminal::Progress::listener);
        let (mut n_done, mut n_runs) = (0, 0);
        let (started, mut first, mut rounds, mut seed) = (Instant::now(), Duration::ZERO, 0, seeds.first());
        loop {
            runs.iter_mut().for_each(|run| run.seed = seed);
            report.begin(seed);
            n_runs += runs.len() as u64;
            let mut tell = |done| {
                report.add(done);
                n_done += 1;
                listener.iter().for_each(|listener| listener(n_done, n_runs));
            };
            schedule::run(runs, jobs, &|run| command.run(run, limit), &mut tell)?;
            rounds += 1;
            if rounds == 1 {
                first = started.elapsed();
            }
            runs = report.with_seed();
            match seeds.next(rounds, first, started.elapsed()) {
                Some(next) if !runs.is_empty() => seed = next,
                _ => break,
            }
        }
        drop(progress);
        if let Some(file) = &self.junit {
            std::fs::write(file, junit::xml(&report))
                .map_err(|error| wrong(format!("cannot write '{}': {error}", file.display())))?;
        }
        report.finish()
    }

    fn plugin(&self) -> Result<&PathBuf, Failure> {
        self.plugin.as_ref().ok_or_else(|| wrong("expected a plugin's file".into()))
    }

    fn chosen(&self) -> Result<Vec<&'static Case>, Failure> {
        // A whole name is a part of others, too, and means itself.
        let is_whole = |pattern: &str| cases::all().any(|case| case.name == pattern);
        let is_like = |pattern: &String, case: &Case| match is_whole(pattern) {
            true => pattern == case.name,
            false => case::matches(pattern, case.name),
        };
        let is_wanted =
            |case: &&Case| self.cases.is_empty() || self.cases.iter().any(|pattern| is_like(pattern, case));
        let chosen: Vec<_> = cases::all().filter(is_wanted).collect();
        if chosen.is_empty() {
            let patterns = self.cases.join("' or '");
            return Err(wrong(format!("no case is like '{patterns}'; --list shows them")));
        }
        Ok(chosen)
    }

    /// Once, or once for each device.
    fn runs_of(&self, case: &'static Case, seed: u64) -> Vec<Run> {
        let run = |device: Option<Device>| {
            let on_cuda = device.is_some_and(|device| device.r#type == abi::DEVICE_CUDA);
            Run { case, device, seed, alone: on_cuda && cases::is_alone(case) }
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
        let case = cases::all().find(|case| case.name == name);
        let case = case.ok_or_else(|| wrong(format!("there is no case '{name}'")))?;
        let device = self.devices.first().copied().unwrap_or(Device::CPU);
        let limit = Duration::from_secs(self.timeout);
        Ok(child::run(case, self.plugin()?, device, self.seed.unwrap_or(1), &self.samples, limit)?)
    }
}

fn wrong(message: String) -> Failure {
    Failure::Host(crossdock::Error::Usage(message))
}
