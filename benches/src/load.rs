//! How long it takes to load the plugins.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crossdock::Host;

use crate::table::Table;
use crate::{Bench, Result};

/// The folder that this program and the plugins stand in.
pub fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().map(PathBuf::from).unwrap_or_default())
}

/// A host with the plugins beside this program.
pub fn host() -> Result<Host> {
    Ok(Host::builder().plugins(folder()?).build()?)
}

/// In a process of its own, for a library is mapped once.
pub fn once() -> Result<()> {
    let start = Instant::now();
    let host = host()?;
    let found = start.elapsed().as_nanos();
    let session = host.session().open()?;
    let start = Instant::now();
    let plugins = session.plugins();
    println!("{found} {} {}", start.elapsed().as_nanos(), plugins.len());
    Ok(())
}

pub fn plugins(bench: &Bench, table: &mut Table) -> Result<()> {
    let (mut found, mut loaded) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs.max(20) {
        let out = Command::new(std::env::current_exe()?).arg("load").output()?;
        let text = String::from_utf8(out.stdout)?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(f)), Some(Ok(l)), Some(Ok(n))) = (numbers.next(), numbers.next(), numbers.next()) else {
            return Err(format!("the child that loads plugins said '{text}'").into());
        };
        if n == 0 {
            return Err(
                format!("no plugins beside {}: build the workspace first", folder()?.display()).into()
            );
        }
        found.push(f);
        loaded.push(l / n);
    }
    table.row("finding the plugins in their folder, metadata read", &found, None);
    table.row("loading one plugin: checks, dlopen, create, formats", &loaded, None);
    Ok(())
}
