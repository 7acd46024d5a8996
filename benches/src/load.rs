//! Measures the loading of plugins.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crossdock::Host;

use crate::table::Table;
use crate::{Bench, Result};

/// Returns the folder that contains this program and the plugins.
pub fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().map(PathBuf::from).unwrap_or_default())
}

/// Creates a host with the plugins in this program's folder.
pub fn host() -> Result<Host> {
    Ok(Host::builder().plugins(folder()?).build()?)
}

/// Loads the plugins once. Runs in its own process, because a library is mapped only once per
/// process.
pub fn measure_once() -> Result<()> {
    let start = Instant::now();
    let host = host()?;
    let search_ns = start.elapsed().as_nanos();
    let session = host.session().open()?;
    let start = Instant::now();
    let plugins = session.plugins();
    println!("{search_ns} {} {}", start.elapsed().as_nanos(), plugins.len());
    Ok(())
}

pub fn plugins(bench: &Bench, table: &mut Table) -> Result<()> {
    let (mut search_ns, mut load_ns) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs.max(20) {
        let out = Command::new(std::env::current_exe()?).arg("load").output()?;
        let text = String::from_utf8(out.stdout)?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(search)), Some(Ok(load)), Some(Ok(n))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(format!("the child process printed '{text}', expected three numbers").into());
        };
        if n == 0 {
            return Err(format!(
                "there are no plugins in {}: build the workspace first",
                folder()?.display()
            )
            .into());
        }
        search_ns.push(search);
        load_ns.push(load / n);
    }
    table.row("finding the plugins in their folder, metadata read", &search_ns, None);
    table.row("loading one plugin: checks, dlopen, create, formats", &load_ns, None);
    Ok(())
}
