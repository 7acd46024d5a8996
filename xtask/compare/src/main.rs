//! `xtask-compare A B`: compares the schema, metadata and values of two Arrow IPC files.

mod compare;

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [left, right] = arguments.as_slice() else {
        bail!("expected two files, got {} arguments", arguments.len())
    };
    let equal = compare::files(Path::new(left), Path::new(right))
        .with_context(|| format!("{right} differs from {left}"))?;
    Ok(format!("equal: {equal}"))
}
