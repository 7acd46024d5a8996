//! The command `crossdock`.

mod command;

use std::process::ExitCode;

use crossdock::isolation::{self, Program};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == isolation::ARGUMENT) {
        return isolation::serve();
    }
    isolation::serve_with(Program::command("/proc/self/exe"));
    command::run()
}
