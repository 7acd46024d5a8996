//! The command line: what can be asked for, and how the answer leaves the process.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use crossdock::Error;

use crate::answer::Failure;
use crate::{abi_diff, convert, devices, encoded, inspect, lock, log, new, plan, plugins, terminal, verify};

/// Moves columnar tables between formats, through plugins that are loaded at run time, with no copy where none is
/// needed.
#[derive(Parser)]
#[command(name = "crossdock", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  crossdock convert flights.arrow flights.arrows       from Arrow's file form to its stream form
  crossdock convert --compression zstd a.arrow b.arrow compress
  cat a.arrows | crossdock convert - b.arrow           from a pipe
  crossdock plan a.arrow --to arrow-c-device           what would be copied
  crossdock plugins --explain                          which plugins are used, and why not the others
  crossdock verify libcrossdock_my_plugin.so           whether a plugin keeps the rules
  crossdock inspect column.cdenc                       the tree of an encoded array, and who decodes it
  crossdock abi-diff old.so new.so                     whether hosts that load the one can load the other
  crossdock lock                                       the plugins of today, for a policy that keeps to them

Plugins are looked for where --plugins says, in CROSSDOCK_PLUGIN_PATH (files and directories, separated by colons),
and beside the executable; a policy (--policy, docs/security.md) says which of them may be loaded. Warnings of the host and
of plugins go to standard error; CROSSDOCK_LOG=error|warn|info|debug|trace says how much of them. CROSSDOCK_TRACE=FILE records
each call of and by plugins. Exit status: 0 done, 1 failed, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    /// Converts IN to OUT
    Convert(convert::Convert),
    /// Shows what a conversion would copy, column by column
    Plan(plan::Plan),
    /// Lists the plugins that were found
    Plugins(plugins::Plugins),
    /// Shows what a plugin file says of itself, without running it, or the tree of an encoded array
    Inspect(inspect::Inspect),
    /// Compares what two builds of a plugin say of themselves, without running them
    AbiDiff(abi_diff::AbiDiff),
    /// Writes down which plugins there are, for a policy that lets no others load
    Lock(lock::Lock),
    /// Lists the devices that there are, and what is missing for CUDA
    Devices(devices::Devices),
    /// Makes the file of an encoded array (.cdenc) from its parts
    Encoded(encoded::Encoded),
    /// Makes a plugin project, which builds, loads and passes its own test
    New(new::New),
    /// Holds a plugin to the rules of crossdock.h, each in a process of its own
    Verify(verify::Verify),
    /// Prints a script that completes this command in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command that the process's arguments ask for.
pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let result = log::start().map_err(Failure::from).and_then(|()| match command {
        Command::Convert(convert) => convert.run(),
        Command::Plan(plan) => plan.run(),
        Command::Plugins(plugins) => plugins.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::AbiDiff(diff) => diff.run(),
        Command::Lock(lock) => lock.run(),
        Command::Devices(devices) => devices.run(),
        Command::Encoded(encoded) => encoded.run(),
        Command::New(new) => new.run(),
        Command::Verify(verify) => verify.run(),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "crossdock", &mut std::io::stdout());
            Ok(())
        }
    });
    let (line, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::No) => return ExitCode::FAILURE,
        Err(Failure::Host(error)) => (error.one_line(), if matches!(error, Error::Usage(_)) { 2 } else { 1 }),
        Err(Failure::Output(error)) => (format!("cannot write the answer: {error}"), 1),
    };
    terminal::complain("error", &line);
    ExitCode::from(code)
}
