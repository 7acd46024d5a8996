//! `cargo xtask mutants`: small faults put into the code, which the tests of the crate must find.
//!
//! `cargo-mutants` makes the faults, in a copy of the sources that has a target folder of its own.

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

/// What `cargo xtask mutants` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The number that selects the mutants: the same one selects the same ones of the same sources
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many mutants; those of a smaller sample are the first ones of a larger one
    #[arg(long, value_name = "M", default_value_t = 20)]
    pub sample: usize,
    /// Only mutants of this package; may be given more than once
    #[arg(long = "package", short = 'p', value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Only mutants whose names contain this, as the list below names them
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Name the mutants that are selected, and run nothing
    #[arg(long)]
    pub list: bool,
}

/// Shows what a program writes while it runs.
pub type Show = fn(&mut Command) -> Result<ExitStatus>;

/// As `cargo xtask mutants`: a mutant that is missed and not explained is an error.
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

/// Why no mutants can be tested here, if none can.
pub fn missing() -> Option<String> {
    let there = cargo().args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success());
    (!there).then(|| {
        format!("cargo-mutants is not installed: cargo install --locked --version {VERSION} cargo-mutants")
    })
}

/// The packages that have mutants.
pub fn packages(workspace: &Workspace) -> Result<Vec<String>> {
    let folders = Folders::of(workspace);
    let _lock = folders.lock()?;
    Ok(Run::list(&folders, workspace)?.packages())
}

/// Puts the selected mutants into a copy of the sources, one after another, and runs the tests.
pub fn test(workspace: &Workspace, options: &Options, show: Show) -> Result<Report> {
    let run = Run::prepare(workspace, options)?;
    let mut report = Report::new(options.seed, run.of, run.equivalent);
    let mut left = run.chosen;
    while let Some(package) = left.first().map(|mutant| mutant.package.clone()) {
        let (these, others) = left.into_iter().partition(|mutant| mutant.package == package);
        left = others;
        run.folders.test(&package, &run.all.others(&package, &these), show)?;
        report.add(these, &run.folders.outcomes(&package)?)?;
    }
    Ok(report)
}

/// What is going to be done.
struct Run {
    _lock: File,
    folders: Folders,
    all: List,
    equivalent: Equivalent,
    chosen: Vec<Mutant>,
    /// How many there were to choose from.
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

/// Where everything lies.
struct Folders {
    /// The copy of the sources.
    tree: PathBuf,
    /// What is built of it. It is kept: the first mutant of a package would wait minutes for what the package stands on.
    build: PathBuf,
    /// What was found, and the logs.
    found: PathBuf,
}

impl Folders {
    fn of(workspace: &Workspace) -> Self {
        let folder = workspace.target.join("mutants");
        Self { tree: folder.join("tree"), build: folder.join("target"), found: folder.join("found") }
    }

    /// Until the file is dropped nobody else brings the copy up to date: that would take the mutant out that is being tested.
    fn lock(&self) -> Result<File> {
        let path = self.tree.with_extension("lock");
        let folder = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
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
        // Nobody debugs a mutant, and to link without this takes half of the time.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "1");
        command
    }

    /// Runs the tests of a package without any mutant, and then with each but these. What is missed is no error here.
    fn test(&self, package: &str, others: &[&str], show: Show) -> Result<()> {
        let found = self.found.join(package);
        // What an earlier run caught would be skipped.
        drop(std::fs::remove_dir_all(&found));
        let skipped = found.join("mutants.out/previously_caught.txt");
        let write = || {
            std::fs::create_dir_all(found.join("mutants.out"))?;
            std::fs::write(&skipped, others.join("\n"))
        };
        write().with_context(|| format!("cannot write {}", skipped.display()))?;
        let mut command = self.cargo_mutants();
        command.args(["--package", package, "--test-package", list::tested_by(package)]);
        // What is not wanted is told as if it had been caught already: `--re` does not hold for all kinds of mutants.
        command.args(["--iterate", "--caught", "--unviable", "--minimum-test-timeout", "60"]);
        command.arg("--output").arg(&found);
        // Neither the examples in the documentation nor the benchmarks.
        command.args(["--", "--tests"]);
        let status = show(&mut command)?;
        match status.code() {
            // Every mutant was caught, some were missed, some took too long.
            Some(0 | 2 | 3) => Ok(()),
            Some(4) => bail!(
                "the tests of {package} fail without any mutant, see {}",
                found.join("mutants.out/log/baseline.log").display()
            ),
            _ => bail!("{} ended with {status}", cargo::show(&command)),
        }
    }

    fn outcomes(&self, package: &str) -> Result<Vec<u8>> {
        let file = self.found.join(package).join("mutants.out/outcomes.json");
        std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
    }
}
