//! `cargo xtask fuzz`: bytes of anybody's making before everything that reads some, for a while.
//!
//! What `cargo fuzz` does, without having to be installed: libFuzzer's flags, and each target for so many seconds.

use crate::cargo::{Workspace, run as run_command, show};
use crate::nightly;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

/// As `cargo fuzz` has them: coverage that the fuzzer follows, AddressSanitizer, and what a release leaves unchecked.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing -Cdebug-assertions";
/// An input that takes longer than this, or more memory than that, is a find.
const LIMITS: &[&str] = &["-timeout=25", "-rss_limit_mb=2048", "-malloc_limit_mb=1024"];
const LONGEST_INPUT: &str = "-max_len=16384";

/// What `cargo xtask fuzz` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Only these targets (fuzz/fuzz_targets)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// For how long, each of them
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// What inputs are made from, for the same ones again; 0: from anything
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u32,
    /// Keep what was found to reach new code in fuzz/seeds, as few inputs as reach all of it
    #[arg(long)]
    keep: bool,
}

/// What became of a target.
pub struct Run {
    /// Its name.
    pub target: String,
    /// How many inputs it was given, or what it found.
    pub outcome: Result<u64, String>,
}

/// Fuzzes as asked, and says what was found.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let Some(toolchain) = nightly::host()? else {
        bail!("fuzzing needs a nightly toolchain: rustup toolchain add nightly")
    };
    let mut targets = Fuzzer::targets(workspace)?;
    if let Some(unknown) = options.targets.iter().find(|target| !targets.contains(target)) {
        bail!("there is no target '{unknown}', expected {}", targets.join(", "));
    }
    targets.retain(|target| options.targets.is_empty() || options.targets.contains(target));
    let fuzzer = Fuzzer::build(workspace, &toolchain, targets)?;
    let runs = fuzzer.fuzz(&fuzzer.targets, options.seconds, options.seed)?;
    for Run { target, outcome } in &runs {
        match outcome {
            Ok(inputs) => println!("{target}: {inputs} inputs, nothing found"),
            Err(found) => println!("{target}: {found}"),
        }
    }
    if options.keep {
        fuzzer.targets.iter().try_for_each(|target| fuzzer.keep(target))?;
    }
    let failed = runs.iter().any(|run| run.outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The targets, built.
pub struct Fuzzer {
    root: PathBuf,
    /// Where the programs are.
    programs: PathBuf,
    /// Where inputs are, a folder a target, and what was found.
    work: PathBuf,
    /// Their names.
    pub targets: Vec<String>,
}

impl Fuzzer {
    /// The names of all that there are, sorted.
    pub fn targets(workspace: &Workspace) -> Result<Vec<String>> {
        let folder = workspace.root.join("fuzz/fuzz_targets");
        let files =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
        let mut targets: Vec<_> = names.collect();
        targets.sort();
        Ok(targets)
    }

    /// Builds targets for the toolchain's own machine, and lays out what they begin with.
    pub fn build(workspace: &Workspace, host: &str, targets: Vec<String>) -> Result<Self> {
        let root = workspace.root.clone();
        let into = workspace.target.join("fuzz");
        let mut build = nightly::program("cargo");
        build.current_dir(&root).env("RUSTFLAGS", FLAGS).args(["build", "--release", "--locked"]);
        build.args(targets.iter().flat_map(|target| ["--bin", target]));
        build.args(["--manifest-path", "fuzz/Cargo.toml", "--target", host, "--target-dir"]).arg(&into);
        run_command(&mut build)?;
        let fuzzer =
            Self { root, programs: into.join(host).join("release"), work: into.join("kept"), targets };
        fuzzer.seeds(&["unpack"], &fuzzer.work.join("inputs"))?;
        Ok(fuzzer)
    }

    fn seeds(&self, arguments: &[&str], folder: &Path) -> Result<()> {
        let mut seeds = Command::new("python3");
        run_command(seeds.current_dir(&self.root).arg("fuzz/seeds.py").args(arguments).arg(folder))
    }

    fn inputs(&self, target: &str) -> PathBuf {
        self.work.join("inputs").join(target)
    }

    /// Each target for so long, as many at a time as there are processors. A seed of 0 is any.
    pub fn fuzz(&self, targets: &[String], seconds: u64, seed: u32) -> Result<Vec<Run>> {
        let left = Mutex::new(targets.iter());
        let runs = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            loop {
                // In a `while let` the lock would be held while the target runs, and none would run beside it.
                let next = lock(&left).next();
                let Some(target) = next else { return Ok(()) };
                let outcome = self.one(target, seconds, seed)?;
                lock(&runs).push(Run { target: target.clone(), outcome });
            }
        };
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
            joined.collect::<Result<()>>()
        })?;
        let mut runs = runs.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        runs.sort_by(|a: &Run, b| a.target.cmp(&b.target));
        Ok(runs)
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(self.programs.join(target));
        command.args(LIMITS).arg(LONGEST_INPUT).stdin(Stdio::null());
        // What a process still holds when it ends is not what is looked for here; the targets see to what matters of it.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        command
    }

    fn one(&self, target: &str, seconds: u64, seed: u32) -> Result<Result<u64, String>> {
        let (inputs, found) = (self.inputs(target), self.work.join("found"));
        [&inputs, &found].into_iter().try_for_each(std::fs::create_dir_all)?;
        let mut command = self.command(target);
        command.arg(format!("-artifact_prefix={}/{target}-", found.display()));
        command.args([format!("-max_total_time={seconds}"), format!("-seed={seed}")]).arg(&inputs);
        let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(
                inputs_of(&said).ok_or_else(|| format!("it ended without saying what it did:\n{said}"))
            );
        }
        Ok(Err(self.told(target, &said)))
    }

    /// What was found, of all that the fuzzer said, and how to see it again.
    fn told(&self, target: &str, said: &str) -> String {
        let begin = ["\nthread '", "\n==", "\nERROR"].iter().filter_map(|mark| said.find(mark)).min();
        let what = said.get(begin.unwrap_or(0)..).unwrap_or(said).trim();
        let input = said.rsplit_once("Test unit written to ").and_then(|(_, rest)| rest.lines().next());
        let program = self.programs.join(target);
        match input {
            Some(input) => {
                format!("found something; to see it again:\n{} {input}\n{what}", program.display())
            }
            None => format!("failed:\n{what}"),
        }
    }

    /// The target's kept inputs become as few as reach what all that it has do.
    fn keep(&self, target: &str) -> Result<()> {
        let merged = self.work.join("merged").join(target);
        if merged.exists() {
            std::fs::remove_dir_all(&merged)?;
        }
        std::fs::create_dir_all(&merged)?;
        run_command(self.command(target).arg("-merge=1").arg(&merged).arg(self.inputs(target)))?;
        self.seeds(&["pack"], &self.work.join("merged"))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How many inputs there were, as libFuzzer says it at its end.
fn inputs_of(said: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once("Done ")?;
    rest.split_once(" runs")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_inputs_is_what_the_fuzzer_says_at_its_end() {
        assert_eq!(inputs_of("#7 DONE\nDone 120284 runs in 31 second(s)\n"), Some(120_284));
        assert_eq!(inputs_of("Done reading\n"), None);
        assert_eq!(inputs_of(""), None);
    }

    #[test]
    fn what_is_found_is_told_with_how_to_see_it_again() {
        let place = PathBuf::from("/fuzzed");
        let fuzzer =
            Fuzzer { root: place.clone(), programs: place.clone(), work: place, targets: Vec::new() };
        let said = "#1 NEW\n\nthread '<unnamed>' panicked at elf.rs:9\n==7== ERROR: deadly signal\n\
                    artifact_prefix='/x/'; Test unit written to /x/elf-crash-1\nBase64: AA==\n";
        let told = fuzzer.told("elf", said);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.get(1), Some(&"/fuzzed/elf /x/elf-crash-1"));
        assert_eq!(lines.get(2), Some(&"thread '<unnamed>' panicked at elf.rs:9"));
        assert!(fuzzer.told("elf", "error: no space\n").ends_with("error: no space"));
    }
}
