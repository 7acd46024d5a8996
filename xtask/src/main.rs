//! The project's own commands, as `cargo xtask COMMAND`.

mod bench;
mod bless;
mod capi;
mod cargo;
mod demo;
mod fnv;
mod fuzz;
mod gpu_bundle;
mod kernels;
mod mutants;
mod nightly;
mod programs;
mod python;
mod seeds;
mod sim_cuda;
mod soak;
mod test;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own commands.
///
/// Needs Rust and a C compiler; `test` also needs Python 3.11 or newer with venv. Everything that these commands make
/// lies under the target folder, or `dist/` for bundles.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the tests: format, house rules, lints, builds, tests in Rust, C and Python, sanitizer
    ///
    /// Without --all, runs the short tier: everything that a change is likely to break, and a sample of the work that is
    /// the same over and over, selected by the hash of the commit. docs/testing.md lists the steps and their tiers.
    ///
    /// Every step runs, whatever became of the ones before, two at a time where there are two cores. The last line counts:
    /// `N passed, N failed, N skipped`; a step without tests of its own (a format check, a build) counts as one. For each
    /// failed step the summary shows the command that runs the failed test again. The golden tests need Arrow's golden
    /// files, and find them through ARROW_TEST_DATA.
    ///
    /// A Rust test that cannot run on this machine writes a line `skipped: NAME: WHY` with
    /// `writeln!(std::io::stderr(), ...)`, which the test harness does not capture, and returns; it is counted as
    /// skipped, not as passed.
    Test(test::Options),
    /// Build, load the plugins, take the sample through arrow-c-device and back, and check that nothing changed
    Demo,
    /// Check the rules of the house that no linter knows: who may use whom, sizes of files, words, numbering
    Tidy,
    /// Write plugin-api/abi/layout.txt anew from the Rust structs, after a change of the ABI that is meant
    ///
    /// With --release, puts the contract on record as that of a release: the header and the layout table go to
    /// plugin-api/abi/released/, under 0.1 for the first release of a minor, 0.1.1 for the first that appended to it. What is
    /// on record is never overwritten, and a contract that breaks it is refused, with each difference.
    Bless(bless::Options),
    /// Run the benchmarks, each beside its peer; arguments after `--` go to them
    Bench(bench::Options),
    /// Compile kernels/cuda into kernels/library/images, by a compiler from the Python package index: no GPU, no toolkit
    ///
    /// With --check, hold the images to the record of their sources and, where the compiler can be had, to what it makes.
    Kernels(kernels::Options),
    /// Install libcrossdock.so, its headers, crossdock.pc and the plugins into a folder, for applications in C and C++
    Capi(capi::Options),
    /// Build the Python package and print its folder: PYTHONPATH=$(cargo xtask python) python PROGRAM
    ///
    /// The folder holds links to the package's sources and to what was built. `pip install ./python` installs the package for
    /// good.
    Python(python::Options),
    /// Pack the command, the plugins and the test programs into dist/gpu-bundle, for a machine without Cargo
    GpuBundle,
    /// Build the simulated CUDA driver and print its folder: LD_LIBRARY_PATH=$(cargo xtask sim-cuda) PROGRAM
    SimCuda(sim_cuda::Options),
    /// Give bytes of anybody's making to everything that reads some, and look what becomes of it
    ///
    /// Needs a nightly toolchain and a C++ compiler. What it finds lies in target/fuzz/kept/found, and is told with how to see
    /// it again.
    Fuzz(fuzz::Options),
    /// Put small faults into the code, and look whether each crate's own tests find them
    ///
    /// A sample of what cargo-mutants can change, selected by a number. The faults go into a copy of the sources,
    /// target/mutants/tree, which has a target folder of its own; the first run builds everything there. One that no test finds
    /// is an error, unless tests/mutants/equivalent.txt has the reason why none can. Some sources are left out:
    /// xtask/src/mutants/list.rs says which, and why. Needs cargo-mutants.
    Mutants(mutants::Options),
    /// Run the tests of packages over the simulated CUDA driver under many seeds, until one fails
    Seeds(seeds::Options),
    /// Inject every fault once, stress the host for hours, then fuzz for hours, with new seeds all along, until something fails
    ///
    /// First, and beside the time, the tests that inject faults run once with a fault at each place where there can be one
    /// (CROSSDOCK_FAULTS=all). Then half of the time goes to the stress tests, with and without the simulated CUDA driver in
    /// turns; the other half to the fuzz targets, which share it. Every run's seed is printed before it begins. The first
    /// failure ends it with exit code 1, what was said, and what to type to see it again. Without a nightly toolchain, which
    /// fuzzing needs, all of the time goes to the stress tests, and that is said.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let workspace = cargo::Workspace::load()?;
    match command {
        Command::Test(options) => return test::run(&workspace, &options),
        Command::Demo => demo::run(&workspace)?,
        Command::Tidy => tidy::run(&workspace)?,
        Command::Bless(options) => bless::run(&workspace, &options)?,
        Command::Bench(options) => bench::run(&workspace, &options)?,
        Command::Kernels(options) => kernels::run(&workspace, &options)?,
        Command::Capi(options) => capi::run(&workspace, &options)?,
        Command::Python(options) => python::run(&workspace, &options)?,
        Command::GpuBundle => gpu_bundle::run(&workspace)?,
        Command::SimCuda(options) => sim_cuda::run(&workspace, &options)?,
        Command::Fuzz(options) => return fuzz::run(&workspace, &options),
        Command::Mutants(options) => mutants::run(&workspace, &options)?,
        Command::Seeds(options) => return seeds::run(&workspace, &options),
        Command::Soak(options) => return soak::run(&workspace, &options),
    }
    Ok(ExitCode::SUCCESS)
}
