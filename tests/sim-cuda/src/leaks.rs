//! What is left when the process ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::door;
use crate::memory::{Block, Kind};
use crate::report::say;
use crate::state::Sim;

/// The exit code of a process that leaks.
const LEAKED: i32 = 86;

static WATCHING: AtomicBool = AtomicBool::new(false);

/// Looks for leaks at the end of a process that started the driver.
pub(crate) fn watch() {
    WATCHING.store(true, Ordering::Relaxed);
}

/// Runs after all that the program itself asked for at its end.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = at_the_end;

extern "C" fn at_the_end() {
    if !WATCHING.load(Ordering::Relaxed) || door::config().ignore_leaks {
        return;
    }
    // A panic here would end the process as an abort, with its message.
    door::at_the_end(|sim| {
        // A child of fork has inherited blocks that are not its own.
        if sim.process != std::process::id() {
            return;
        }
        let lines = report(sim);
        if !lines.is_empty() {
            lines.iter().for_each(|line| say(line));
            // SAFETY: ends the process; whatever else would run at its end is left out.
            unsafe { libc::_exit(LEAKED) };
        }
    });
}

/// A line for each call site.
fn report(sim: &Sim) -> Vec<String> {
    let mut leaks: BTreeMap<(String, &str), (u64, u64)> = BTreeMap::new();
    for block in sim.blocks.values().filter(|block| counts(sim, block)) {
        let what = match block.kind {
            Kind::Device { .. } => "of device memory",
            Kind::Pinned => "of pinned memory",
            Kind::Registered => "of registered memory",
        };
        let (count, bytes) = leaks.entry((sim.sites.short(block.allocated), what)).or_default();
        *count += 1;
        *bytes += block.bytes;
    }
    for physical in sim.physical.values().filter(|physical| physical.handles > 0) {
        let at = (sim.sites.short(physical.made), "of handles of device memory");
        let (count, bytes) = leaks.entry(at).or_default();
        *count += 1;
        *bytes += physical.bytes;
    }
    let line = |((site, what), (count, bytes)): (&(String, &str), &(u64, u64))| {
        format!("leak: {bytes} bytes {what} in {count} blocks, from {site}")
    };
    leaks.iter().map(line).collect()
}

/// Blocks that are being freed are no leak, nor is what a broken device cannot free.
pub(crate) fn counts(sim: &Sim, block: &Block) -> bool {
    let broken = match block.kind {
        Kind::Device { device, .. } => sim.devices[device].sticky.is_some(),
        Kind::Pinned | Kind::Registered => false,
    };
    block.freed.is_none() && !broken
}
