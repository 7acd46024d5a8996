//! The command line: subcommands, help, and the exit status.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use crossdock::Error;

use crate::output::Failure;
use crate::{
    abi_diff, convert, devices, doctor, encoded, inspect, lock, log, new, plan, plugins, show, terminal,
    verify,
};

/// Converts columnar tables between formats with plugins that are loaded at run time, without
/// unnecessary copies
#[derive(Parser)]
#[command(name = "crossdock", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  crossdock convert flights.arrow flights.arrows       Convert an Arrow IPC file to a stream
  crossdock convert --compression zstd a.arrow b.arrow Compress a file
  cat a.arrows | crossdock convert - b.arrow           Read from a pipe
  crossdock show flights.arrow                         Show the first rows
  crossdock plan a.arrow --to arrow-c-device           Show what a conversion would copy
  crossdock plugins --explain                          Show which plugins are used, and why others are not
  crossdock doctor                                     Check the installation
  crossdock verify libcrossdock_my_plugin.so           Check whether a plugin keeps the rules
  crossdock inspect column.cdenc                       Show the nodes of an encoded array and their plugins
  crossdock abi-diff old.so new.so                     Check whether hosts of one build can load another
  crossdock lock                                       Record the present plugins for a policy

Plugins are searched in the paths of --plugins, in CROSSDOCK_PLUGIN_PATH (files and directories, separated by
colons), next to the executable, and in ../lib/crossdock/plugins relative to it. A policy (--policy,
docs/security.md) decides which of them may be loaded.
Warnings of the host and of plugins go to standard error, at the level CROSSDOCK_LOG=error|warn|info|debug|trace.
CROSSDOCK_TRACE=FILE records all calls between the host and plugins.

Exit status: 0 for success, 1 for failure, 2 for wrong usage.";

#[derive(Subcommand)]
enum Command {
    /// Converts IN to OUT
    Convert(convert::Convert),
    /// Shows what a conversion would copy, column by column
    Plan(plan::Plan),
    /// Shows the first rows of tables
    Show(show::Show),
    /// Lists the available plugins
    Plugins(plugins::Plugins),
    /// Shows the metadata of a plugin without running it, the nodes of an encoded array, or the
    /// columns of a table
    Inspect(inspect::Inspect),
    /// Compares the metadata of two builds of a plugin, without running them
    AbiDiff(abi_diff::AbiDiff),
    /// Writes the hashes of the present plugins to a lock file, for a policy that allows no others
    Lock(lock::Lock),
    /// Lists the available devices, and the features that CUDA lacks
    Devices(devices::Devices),
    /// Checks the installation, and says what to do about problems
    Doctor(doctor::Doctor),
    /// Writes an encoded array (.cdenc) from its parts
    Encoded(encoded::Encoded),
    /// Creates a plugin project that builds, loads and passes its own test
    New(new::New),
    /// Checks whether a plugin keeps the rules of crossdock.h
    Verify(verify::Verify),
    /// Writes a manual page for each subcommand into a folder
    #[command(hide = true)]
    Man {
        /// The folder
        folder: std::path::PathBuf,
    },
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command that the process's arguments select.
pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let result = log::start().map_err(Failure::from).and_then(|()| match command {
        Command::Convert(convert) => convert.run(),
        Command::Plan(plan) => plan.run(),
        Command::Show(show) => show.run(),
        Command::Plugins(plugins) => plugins.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::AbiDiff(diff) => diff.run(),
        Command::Lock(lock) => lock.run(),
        Command::Devices(devices) => devices.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Encoded(encoded) => encoded.run(),
        Command::New(new) => new.run(),
        Command::Verify(verify) => verify.run(),
        Command::Man { folder } => clap_mangen::generate_to(Cli::command(), folder).map_err(Failure::Output),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "crossdock", &mut std::io::stdout());
            Ok(())
        }
    });
    let (line, code) = match result {
        Ok(()) | Err(Failure::ReaderClosed) => return ExitCode::SUCCESS,
        Err(Failure::Negative) => return ExitCode::FAILURE,
        Err(Failure::Host(error)) => (error.one_line(), if matches!(error, Error::Usage(_)) { 2 } else { 1 }),
        Err(Failure::Output(error)) => (format!("cannot write to standard output: {error}"), 1),
    };
    terminal::report("error", &line);
    ExitCode::from(code)
}
