//! `cargo xtask mutants`: injects small faults, which the tests of the crate must find.
//!
//! `cargo-mutants` injects the faults into a copy of the sources with its own target folder.

mod equivalent;
mod list;
mod report;
mod tree;

pub use report::Report;

use crate::cargo::{self, Workspace, cargo};
use anyhow::{Context, Result, bail};
use equivalent::Equivalent;
use list::{List, Mutant};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

const VERSION: &str = "27.1.0";

/// Options of `cargo xtask mutants`.
#[derive(clap::Args)]
pub struct Options {
    /// The number that selects the mutants; for unchanged sources, a number always selects the same
    /// mutants
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The number of mutants; a larger sample contains all mutants of a smaller one
    #[arg(long, value_name = "M", default_value_t = 20)]
    pub sample: usize,
    /// Test only mutants of this package; may be given more than once
    #[arg(long = "package", short = 'p', value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Test only mutants whose names, as printed by --list, contain this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Print the names of the selected mutants, and run nothing
    #[arg(long)]
    pub list: bool,
}

/// Runs a program and shows its output.
pub type Show = fn(&mut Command) -> Result<ExitStatus>;

/// Runs `cargo xtask mutants`.
///
/// # Errors
/// Returns an error if a mutant was missed and is not known to be equivalent.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(why) = missing() {
        bail!("{why}");
    }
    if options.list {
        let run = Run::prepare(workspace, options)?;
        run.chosen.iter().for_each(|mutant| println!("{}", mutant.name));
        return Ok(());
    }
    let report = test(workspace, options, |command| {
        command.status().with_context(|| format!("cannot start {}", cargo::show(command)))
    })?;
    report.lines().iter().for_each(|line| println!("{line}"));
    report.check()
}

/// The reason why mutants cannot be tested here, if there is one.
pub fn missing() -> Option<String> {
    let is_installed =
        cargo().args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success());
    (!is_installed).then(|| {
        format!("cargo-mutants is not installed: cargo install --locked --version {VERSION} cargo-mutants")
    })
}

/// The packages with mutants.
pub fn packages(workspace: &Workspace) -> Result<Vec<String>> {
    let folders = Folders::of(workspace);
    let _lock = folders.lock()?;
    Ok(Run::list(&folders, workspace)?.packages())
}

/// Injects the selected mutants into a copy of the sources one after another, and runs the tests.
pub fn test(workspace: &Workspace, options: &Options, show: Show) -> Result<Report> {
    let run = Run::prepare(workspace, options)?;
    let mut report = Report::new(options.seed, run.of, run.equivalent);
    let mut pending = run.chosen;
    while let Some(package) = pending.first().map(|mutant| mutant.package.clone()) {
        let (these, others) = pending.into_iter().partition(|mutant| mutant.package == package);
        pending = others;
        run.folders.test(&package, &run.all.others(&package, &these), show)?;
        report.add(these, &run.folders.outcomes(&package)?)?;
    }
    Ok(report)
}

/// A run whose mutants are selected.
struct Run {
    _lock: File,
    folders: Folders,
    all: List,
    equivalent: Equivalent,
    chosen: Vec<Mutant>,
    /// The number of mutants from which the sample was taken.
    of: usize,
}

impl Run {
    fn list(folders: &Folders, workspace: &Workspace) -> Result<List> {
        tree::bring_up_to_date(&workspace.root, &folders.tree)?;
        let mut command = folders.cargo_mutants();
        command.args(["--workspace", "--list", "--json"]);
        let output = command.output().with_context(|| format!("cannot start {}", cargo::show(&command)))?;
        if !output.status.success() {
            bail!("{} failed: {}", cargo::show(&command), String::from_utf8_lossy(&output.stderr).trim());
        }
        List::read(&output.stdout)
    }

    fn prepare(workspace: &Workspace, options: &Options) -> Result<Self> {
        let folders = Folders::of(workspace);
        let _lock = folders.lock()?;
        let all = Self::list(&folders, workspace)?;
        let equivalent = Equivalent::load(&workspace.root)?;
        equivalent.check(&all)?;
        let among = all.those_of(&options.packages, options.filter.as_deref())?;
        let of = among.len();
        let chosen = list::sample(among, options.seed, options.sample);
        Ok(Self { _lock, folders, all, equivalent, chosen, of })
    }
}

/// The folders that a run uses.
struct Folders {
    /// The copy of the sources.
    tree: PathBuf,
    /// The target folder. It is not removed after a run, because building the dependencies of a
    /// package takes minutes.
    build: PathBuf,
    /// The folder for results and logs.
    results: PathBuf,
}

impl Folders {
    fn of(workspace: &Workspace) -> Self {
        let folder = workspace.target.join("mutants");
        Self { tree: folder.join("tree"), build: folder.join("target"), results: folder.join("found") }
    }

    /// Locks the copy until the returned file is dropped. Otherwise another process could update
    /// the copy and remove the mutant under test.
    fn lock(&self) -> Result<File> {
        let path = self.tree.with_extension("lock");
        let folder = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!("mutants are being tested already: {} is locked", path.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    fn cargo_mutants(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.tree).args(["mutants", "--no-config", "--colors", "never", "--in-place"]);
        command.env("CARGO_TARGET_DIR", &self.build);
        // Disables debug information, which mutants do not need. Linking then takes half of the
        // time.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "1");
        command
    }

    /// Runs the tests of a package without mutants, and then with each mutant except `others`. A
    /// missed mutant is not an error.
    fn test(&self, package: &str, others: &[&str], show: Show) -> Result<()> {
        let results = self.results.join(package);
        // Removes earlier results, because cargo-mutants would skip mutants that an earlier run
        // caught.
        drop(std::fs::remove_dir_all(&results));
        let skipped = results.join("mutants.out/previously_caught.txt");
        let write = || {
            std::fs::create_dir_all(results.join("mutants.out"))?;
            std::fs::write(&skipped, others.join("\n"))
        };
        write().with_context(|| format!("cannot write {}", skipped.display()))?;
        let mut command = self.cargo_mutants();
        command.args(["--package", package, "--test-package", list::tested_by(package)]);
        // Lists unselected mutants as already caught, so that cargo-mutants skips them. The option
        // `--re` is not used, because it does not apply to all kinds of mutants.
        command.args(["--iterate", "--caught", "--unviable", "--minimum-test-timeout", "60"]);
        command.arg("--output").arg(&results);
        // Runs neither doc tests nor benchmarks.
        command.args(["--", "--tests"]);
        let status = show(&mut command)?;
        match status.code() {
            // The exit codes for: all mutants were caught, some were missed, some timed out.
            Some(0 | 2 | 3) => Ok(()),
            Some(4) => bail!(
                "the tests of {package} fail without a mutant, see {}",
                results.join("mutants.out/log/baseline.log").display()
            ),
            _ => bail!("{} ended with {status}", cargo::show(&command)),
        }
    }

    fn outcomes(&self, package: &str) -> Result<Vec<u8>> {
        let file = self.results.join(package).join("mutants.out/outcomes.json");
        std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
    }
}
