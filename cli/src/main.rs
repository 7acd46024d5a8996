//! The command `crossdock`.

mod abi_diff;
mod command;
mod convert;
mod devices;
mod doctor;
mod encoded;
mod inputs;
mod inspect;
mod inspect_table;
mod inspect_tree;
mod interrupt;
mod lock;
mod log;
mod new;
mod options;
mod output;
mod plan;
mod plugins;
mod show;
mod terminal;
mod text;
mod truncated_input;
mod verify;

use std::process::ExitCode;

use crossdock::isolation::{self, Program};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == isolation::SERVE_ARGUMENT) {
        return isolation::serve();
    }
    isolation::serve_with(Program::command("/proc/self/exe"));
    command::run()
}
