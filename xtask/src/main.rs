//! Runs the project's development commands: `cargo xtask COMMAND`.

mod bench;
mod bless;
mod book;
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

/// The project's development commands
///
/// They need Rust and a C compiler. `test` also needs Python 3.11 or newer with venv. Outputs are
/// written to the target folder, and bundles to `dist/`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the tests: format, project rules, lints, builds, tests in Rust, C and Python, and a
    /// sanitizer
    ///
    /// Without --all, runs the short tier: all tests that a change is likely to break, and a sample
    /// of repetitive tests. The hash of the commit selects the sample. docs/testing.md lists the
    /// steps and their tiers.
    ///
    /// All steps run, even if a step fails. Two steps run at a time, which is intended for two
    /// cores. The last line is `N passed, N failed, N skipped`; a step without tests, such as a
    /// format check or a build, counts as one test. For each failed step, the summary shows the
    /// command that repeats the failed test. The golden tests need Arrow's golden files in the
    /// folder that ARROW_TEST_DATA names.
    ///
    /// A Rust test that cannot run on this machine writes a line `skipped: NAME: WHY` and returns.
    /// It is counted as skipped and not as passed. It writes the line with
    /// `writeln!(std::io::stderr(), ...)`, because the test harness does not capture this output.
    Test(test::Options),
    /// Build the command and plugins, convert a sample through plugins and back, and compare the
    /// results
    Demo,
    /// Check the project's rules that no linter checks: layering, module cycles, sizes of files,
    /// forbidden words, numbering
    Tidy,
    /// Write plugin-api/abi/layout.txt from the Rust structs, after an intended change of the ABI
    ///
    /// With --release, also records the headers and the layout table of a release in
    /// plugin-api/abi/released/. The record has the name of the ABI's version, such as 1.0.1 for
    /// the first release that appends to ABI 1.0. Records are never overwritten. A change that
    /// breaks a recorded ABI is rejected, and each difference is printed.
    Bless(bless::Options),
    /// Run the benchmarks of Crossdock and of comparable libraries; pass them the arguments after
    /// `--`
    Bench(bench::Options),
    /// Compile kernels/cuda to kernels/library/images with a compiler from the Python package
    /// index, without a GPU or a CUDA toolkit
    ///
    /// With --check, only compares the committed images with the record of their sources and, if
    /// the compiler is available, with the output of the compiler.
    Kernels(kernels::Options),
    /// Build the documentation site in target/book, and print the path of its first page
    ///
    /// Builds the command and the plugins first, because the site has their help texts. Broken
    /// links are errors. The packages in docs/site/requirements.txt are installed in
    /// target/book-venv.
    Book(book::Options),
    /// Install libcrossdock.so, its headers, crossdock.pc and the plugins into a folder, for
    /// applications in C and C++
    Capi(capi::Options),
    /// Build the Python package and print its folder: PYTHONPATH=$(cargo xtask python) python
    /// PROGRAM
    ///
    /// The folder has links to the package's sources and to the built libraries. `pip install
    /// ./python` installs the package permanently.
    Python(python::Options),
    /// Pack the command, the plugins and the test programs into dist/gpu-bundle, for a machine
    /// without Cargo
    GpuBundle,
    /// Build and verify what is published, in one folder: crates, a tarball and a wheel
    ///
    /// Pass the options after the command; --help lists them. docs/releasing.md describes a
    /// release.
    #[command(disable_help_flag = true)]
    Release {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Build the simulated CUDA driver and print its folder: LD_LIBRARY_PATH=$(cargo xtask
    /// sim-cuda) PROGRAM
    SimCuda(sim_cuda::Options),
    /// Run the fuzz targets
    ///
    /// Needs a nightly toolchain and a C++ compiler. Findings are stored in target/fuzz/kept/found,
    /// and printed with the command that repeats them.
    Fuzz(fuzz::Options),
    /// Inject small faults into the code, and check whether each crate's own tests find them
    ///
    /// cargo-mutants injects the faults. A number selects a sample of its mutants. The faults are
    /// injected into a copy of the sources, target/mutants/tree, which has its own target folder.
    /// The first run builds everything there. A mutant that no test finds is an error, unless
    /// tests/mutants/equivalent.txt has the reason why no test can find it.
    /// xtask/src/mutants/list.rs lists excluded sources with reasons. Needs cargo-mutants.
    Mutants(mutants::Options),
    /// Run the tests of packages on the simulated CUDA driver with many seeds, until a test fails
    Seeds(seeds::Options),
    /// Inject every fault once, then run stress tests and fuzz targets for hours with new seeds,
    /// until something fails
    ///
    /// First, the tests that inject faults run once with a fault at each possible place
    /// (CROSSDOCK_FAULTS=all). Their time is not a part of --hours. Then the stress tests run for
    /// half of the time, alternately with and without the simulated CUDA driver. The fuzz targets
    /// run for the other half. The seed of each run is printed before the run begins. At the first
    /// failure, the command prints the output and the command that repeats the failure, and ends
    /// with exit code 1. Fuzzing needs a nightly toolchain. Without it, a message is printed and
    /// the stress tests run for all of the time.
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
        Command::Book(options) => book::run(&workspace, &options)?,
        Command::Capi(options) => capi::run(&workspace, &options)?,
        Command::Python(options) => python::run(&workspace, &options)?,
        Command::GpuBundle => gpu_bundle::run(&workspace)?,
        Command::Release { arguments } => {
            let mut release = cargo::cargo();
            release.current_dir(&workspace.root).args(["run", "--quiet", "-p", "xtask-release", "--"]);
            cargo::run(release.args(arguments))?;
        }
        Command::SimCuda(options) => sim_cuda::run(&workspace, &options)?,
        Command::Fuzz(options) => return fuzz::run(&workspace, &options),
        Command::Mutants(options) => mutants::run(&workspace, &options)?,
        Command::Seeds(options) => return seeds::run(&workspace, &options),
        Command::Soak(options) => return soak::run(&workspace, &options),
    }
    Ok(ExitCode::SUCCESS)
}
