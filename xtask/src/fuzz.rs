//! `cargo xtask fuzz`: runs the fuzz targets for a limited time.
//!
//! Does not need `cargo fuzz`. Builds the targets with the flags for libFuzzer, and limits the time
//! for which each target runs.

use crate::cargo::{Workspace, run as run_command, show};
use crate::nightly;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

/// The flags of `cargo fuzz`: coverage for the fuzzer, AddressSanitizer, and checks that the
/// release profile omits.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing -Cdebug-assertions";
/// The limits of time and memory for one input. An input that exceeds a limit is a finding.
const LIMITS: &[&str] = &["-timeout=25", "-rss_limit_mb=2048", "-malloc_limit_mb=1024"];
const MAX_INPUT_LEN: &str = "-max_len=16384";

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Options {
    /// Run only these targets (fuzz/fuzz_targets)
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// The time of each target
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// The seed of the random inputs; 0 for a random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u32,
    /// Store the inputs that reach new code in fuzz/seeds, minimised
    #[arg(long)]
    keep: bool,
}

/// The result of running a target.
pub struct Run {
    /// The target's name.
    pub target: String,
    /// The number of inputs, or the description of a finding.
    pub outcome: Result<u64, String>,
}

/// Runs the targets, and prints the findings.
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
            Ok(inputs) => println!("{target}: {inputs} inputs, no findings"),
            Err(finding) => println!("{target}: {finding}"),
        }
    }
    if options.keep {
        fuzzer.targets.iter().try_for_each(|target| fuzzer.keep(target))?;
    }
    let failed = runs.iter().any(|run| run.outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The targets and their folders.
pub struct Fuzzer {
    root: PathBuf,
    /// The folder of the programs.
    programs: PathBuf,
    /// The folder with the inputs and the findings. The inputs of each target have a subfolder.
    work: PathBuf,
    /// The names of the targets.
    pub targets: Vec<String>,
}

impl Fuzzer {
    /// The sorted names of all targets.
    pub fn targets(workspace: &Workspace) -> Result<Vec<String>> {
        let folder = workspace.root.join("fuzz/fuzz_targets");
        let files =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
        let mut targets: Vec<_> = names.collect();
        targets.sort();
        Ok(targets)
    }

    /// Builds targets for this machine, and copies their seeds.
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

    /// Runs each target for this time. The targets run in parallel on all processors. The seed 0
    /// means a random seed.
    pub fn fuzz(&self, targets: &[String], seconds: u64, seed: u32) -> Result<Vec<Run>> {
        let pending = Mutex::new(targets.iter());
        let runs = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            loop {
                // A `while let` would hold the lock while the target runs, and no other target
                // could run.
                let next = lock(&pending).next();
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
        command.args(LIMITS).arg(MAX_INPUT_LEN).stdin(Stdio::null());
        // Leaks at the end of the process are ignored, because the targets check relevant leaks
        // themselves.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        command
    }

    fn one(&self, target: &str, seconds: u64, seed: u32) -> Result<Result<u64, String>> {
        let (inputs, findings) = (self.inputs(target), self.work.join("found"));
        [&inputs, &findings].into_iter().try_for_each(std::fs::create_dir_all)?;
        let mut command = self.command(target);
        command.arg(format!("-artifact_prefix={}/{target}-", findings.display()));
        command.args([format!("-max_total_time={seconds}"), format!("-seed={seed}")]).arg(&inputs);
        let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(inputs_of(&stderr).ok_or_else(|| format!("it ended without statistics:\n{stderr}")));
        }
        Ok(Err(self.finding(target, &stderr)))
    }

    /// Extracts the finding from the fuzzer's output, and adds the command that repeats it.
    fn finding(&self, target: &str, stderr: &str) -> String {
        let begin = ["\nthread '", "\n==", "\nERROR"].iter().filter_map(|mark| stderr.find(mark)).min();
        let details = stderr.get(begin.unwrap_or(0)..).unwrap_or(stderr).trim();
        let input = stderr.rsplit_once("Test unit written to ").and_then(|(_, rest)| rest.lines().next());
        let program = self.programs.join(target);
        match input {
            Some(input) => {
                format!("a finding; to repeat it:\n{} {input}\n{details}", program.display())
            }
            None => format!("failed:\n{details}"),
        }
    }

    /// Minimises the target's stored inputs to a smaller set that reaches the same code.
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

/// The number of inputs, from libFuzzer's last lines.
fn inputs_of(stderr: &str) -> Option<u64> {
    let (_, rest) = stderr.rsplit_once("Done ")?;
    rest.split_once(" runs")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_number_of_inputs() {
        assert_eq!(inputs_of("#7 DONE\nDone 120284 runs in 31 second(s)\n"), Some(120_284));
        assert_eq!(inputs_of("Done reading\n"), None);
        assert_eq!(inputs_of(""), None);
    }

    #[test]
    fn fuzzer_finding_contains_the_command_that_reproduces_it() {
        let place = PathBuf::from("/fuzzed");
        let fuzzer =
            Fuzzer { root: place.clone(), programs: place.clone(), work: place, targets: Vec::new() };
        let stderr = "#1 NEW\n\nthread '<unnamed>' panicked at elf.rs:9\n==7== ERROR: deadly signal\n\
                    artifact_prefix='/x/'; Test unit written to /x/elf-crash-1\nBase64: AA==\n";
        let finding = fuzzer.finding("elf", stderr);
        let lines: Vec<_> = finding.lines().collect();
        assert_eq!(lines.get(1), Some(&"/fuzzed/elf /x/elf-crash-1"));
        assert_eq!(lines.get(2), Some(&"thread '<unnamed>' panicked at elf.rs:9"));
        assert!(fuzzer.finding("elf", "error: no space\n").ends_with("error: no space"));
    }
}
