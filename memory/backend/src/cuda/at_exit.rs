//! Completes pending CUDA work of other threads before the process ends and the driver shuts down.
//!
//! The last reference to a backend may be dropped on a cleanup thread of another component, or on
//! the thread of the backend's reaper. The reaper's thread is not joined. Without this module, the
//! process could end while such a thread is between two calls to the driver.

use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::forks;
use crate::process_wide::ProcessWide;

/// Maximum time that unfinished work delays the end of the process.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Value of `forks::count` when the driver was started.
static FORKS: OnceLock<u32> = OnceLock::new();
/// The reapers whose threads were started in this process.
static REAPERS: ProcessWide<Vec<Weak<dyn Flush>>> = ProcessWide::new();
static HOOKS: ProcessWide<Vec<fn(Instant)>> = ProcessWide::new();

/// An object that has pending work on its own thread.
pub(super) trait Flush: Send + Sync {
    /// Blocks until the work is done or `until` has passed. `None` means no time limit.
    fn flush(&self, until: Option<Instant>);
}

/// Registers `wait`, which is called at the end of a process that has started the CUDA driver,
/// before the driver shuts down. `wait` must block until the work of its thread is done, or the
/// time that it receives has passed.
pub fn before_exit(wait: fn(Instant)) {
    HOOKS.lock().push(wait);
}

/// Installs the exit handler. Must be called after the driver has been started: exit handlers run
/// in reverse order, so this handler then runs before the driver's handler.
pub(super) fn install_handler() {
    FORKS.get_or_init(|| {
        // SAFETY: `finish` is a static function, and the system unregisters it when this library is
        // unloaded. If the registration fails, the process ends without waiting.
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
    // A forked child process does not have the parent's threads, and a lock that one of these
    // threads held at the fork stays locked forever.
    if FORKS.get() != Some(&forks::count()) {
        return;
    }
    let until = Instant::now() + MAX_WAIT;
    let wait = || {
        let reapers = REAPERS.lock().clone();
        reapers.iter().filter_map(Weak::upgrade).for_each(|reaper| reaper.flush(Some(until)));
    };
    // The jobs of the reapers may add work for the hooks, and the hooks may add jobs for the
    // reapers, so the reapers are flushed again after the hooks.
    wait();
    let hooks = HOOKS.lock().clone();
    hooks.into_iter().for_each(|hook| hook(until));
    wait();
}
