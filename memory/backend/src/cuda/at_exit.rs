//! The end of the process: what other threads still have to do with a device is done before the driver goes.
//!
//! The last owner of a backend may go on its reaper's own thread, which nobody joins then, or on one of somebody else's who
//! clears up. Without this the process could end while such a thread is between two calls of the driver.

use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::forks;
use crate::process_wide::ProcessWide;

/// Work that a device does not finish holds no process up for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many forks lay before the process that started the driver.
static FORKS: OnceLock<u32> = OnceLock::new();
/// Those whose threads were started in this process.
static REAPERS: ProcessWide<Vec<Weak<dyn Flushes>>> = ProcessWide::new();
static OTHERS: ProcessWide<Vec<fn(Instant)>> = ProcessWide::new();

/// What has work to do with a device on a thread of its own.
pub(super) trait Flushes: Send + Sync {
    /// Waits until that is done, and not for longer than `until`.
    fn flush(&self, until: Option<Instant>);
}

/// Has `wait` called at the end of a process that has started the CUDA driver, before that goes: it blocks until what its
/// thread has to do is done, and for no longer than it is told to.
pub fn before_exit(wait: fn(Instant)) {
    OTHERS.lock().push(wait);
}

/// Called once the driver has been started, so that our handler comes before the driver's own.
pub(super) fn arm() {
    FORKS.get_or_init(|| {
        // SAFETY: the handler is of this library, which the system takes off when the library goes. Where there is no room
        // for it, the process ends as it would without it.
        unsafe { libc::atexit(finish) };
        forks::count()
    });
}

pub(super) fn watch(reaper: Weak<dyn Flushes>) {
    let mut reapers = REAPERS.lock();
    reapers.retain(|known| known.strong_count() > 0);
    reapers.push(reaper);
}

extern "C" fn finish() {
    // A child of fork has neither the threads nor whoever may hold a lock.
    if FORKS.get() != Some(&forks::count()) {
        return;
    }
    let until = Instant::now() + PATIENCE;
    let wait = || {
        let reapers = REAPERS.lock().clone();
        reapers.iter().filter_map(Weak::upgrade).for_each(|reaper| reaper.flush(Some(until)));
    };
    // What reapers let go of may be for others to clear up, and the other way round.
    wait();
    let others = OTHERS.lock().clone();
    others.into_iter().for_each(|other| other(until));
    wait();
}
