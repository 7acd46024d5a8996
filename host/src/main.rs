//! The command `crossdock`.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
