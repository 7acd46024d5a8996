//! Reports leaks at the end of the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::door;
use crate::memory::{Block, Kind};
use crate::report::say;
use crate::state::Sim;

/// The exit code of a process that leaks.
const LEAK_EXIT_CODE: i32 = 86;

static IS_WATCHING: AtomicBool = AtomicBool::new(false);

/// Enables the leak check at the end of the process.
pub(crate) fn watch() {
    IS_WATCHING.store(true, Ordering::Relaxed);
}

/// Runs after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = at_the_end;

extern "C" fn at_the_end() {
    if !IS_WATCHING.load(Ordering::Relaxed) || door::config().ignore_leaks {
        return;
    }
    // A panic here prints its message and aborts the process.
    door::at_the_end(|sim| {
        // A child process of `fork` inherits blocks that its parent must free.
        if sim.process != std::process::id() {
            return;
        }
        let lines = report(sim);
        if !lines.is_empty() {
            lines.iter().for_each(|line| say(line));
            // SAFETY: `_exit` has no preconditions; it skips the remaining exit handlers.
            unsafe { libc::_exit(LEAK_EXIT_CODE) };
        }
    });
}

/// Returns one line for each call site that allocated leaked blocks.
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
        let at = (sim.sites.short(physical.created_at), "of device memory with open handles");
        let (count, bytes) = leaks.entry(at).or_default();
        *count += 1;
        *bytes += physical.bytes;
    }
    let line = |((site, what), (count, bytes)): (&(String, &str), &(u64, u64))| {
        format!("leak: {bytes} bytes {what} in {count} blocks, from {site}")
    };
    leaks.iter().map(line).collect()
}

/// Whether a live block counts as a leak. A block with a queued free or on a broken device does not
/// count.
pub(crate) fn counts(sim: &Sim, block: &Block) -> bool {
    let broken = match block.kind {
        Kind::Device { device, .. } => sim.devices[device].sticky.is_some(),
        Kind::Pinned | Kind::Registered => false,
    };
    block.freed.is_none() && !broken
}
