//! Completes pending CUDA work of other threads before the process ends and the driver shuts down.
//!
//! The last reference to a backend may be dropped on its reaper's thread, which is then not joined,
//! or on a thread of another component that cleans up. Without this module, the process could end
//! while such a thread is between two calls of the driver.

use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::forks;
use crate::process_wide::ProcessWide;

/// Maximum time that unfinished work delays the end of the process.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Number of forks when the driver was started.
static FORKS: OnceLock<u32> = OnceLock::new();
/// The reapers whose threads were started in this process.
static REAPERS: ProcessWide<Vec<Weak<dyn Flush>>> = ProcessWide::new();
static HOOKS: ProcessWide<Vec<fn(Instant)>> = ProcessWide::new();

/// An object with pending work on a thread of its own.
pub(super) trait Flush: Send + Sync {
    /// Waits until the work is done, at most until `until`.
    fn flush(&self, until: Option<Instant>);
}

/// Registers `wait`, which is called at the end of a process that has started the CUDA driver,
/// before the driver shuts down. It must block until the work of its thread is done, at most until
/// the given time.
pub fn before_exit(wait: fn(Instant)) {
    HOOKS.lock().push(wait);
}

/// Installs the handler. Called after the driver has been started, so that this handler runs before
/// the driver's.
pub(super) fn install_handler() {
    FORKS.get_or_init(|| {
        // SAFETY: the handler is a function of this library; the system removes it when the library
        // is unloaded. If registration fails, the process ends without waiting.
        unsafe { libc::atexit(finish) };
        forks::count()
    });
}

pub(super) fn register(reaper: Weak<dyn Flush>) {
    let mut reapers = REAPERS.lock();
    reapers.retain(|reaper| reaper.strong_count() > 0);
    reapers.push(reaper);
}

extern "C" fn finish() {
    // A forked child does not have the threads, and locks may be locked forever.
    if FORKS.get() != Some(&forks::count()) {
        return;
    }
    let until = Instant::now() + MAX_WAIT;
    let wait = || {
        let reapers = REAPERS.lock().clone();
        reapers.iter().filter_map(Weak::upgrade).for_each(|reaper| reaper.flush(Some(until)));
    };
    // The reapers' work may add work for the hooks, and the other way round.
    wait();
    let hooks = HOOKS.lock().clone();
    hooks.into_iter().for_each(|hook| hook(until));
    wait();
}
