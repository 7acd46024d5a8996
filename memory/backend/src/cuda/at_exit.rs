//! The end of the process: what reapers still have to do is done before the driver goes.
//!
//! The last owner of a backend may go on its reaper's own thread, which nobody joins then. Without this the process could end
//! while that thread is between two calls of the driver.

use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::reaper::Shared;
use crate::forks;

/// Work that a device does not finish holds no process up for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Those whose threads were started in this process.
static REAPERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// How many forks lay before the first of them.
static FORKS: OnceLock<u32> = OnceLock::new();

/// Called after the driver has been started, so that our handler comes before the driver's own.
pub(super) fn watch(reaper: Weak<Shared>) {
    FORKS.get_or_init(|| {
        // SAFETY: the handler is of this library, which the system takes off when the library goes. Where there is no room
        // for it, the process ends as it would without it.
        unsafe { libc::atexit(finish) };
        forks::count()
    });
    let mut reapers = REAPERS.lock().unwrap_or_else(PoisonError::into_inner);
    reapers.retain(|known| known.strong_count() > 0);
    reapers.push(reaper);
}

extern "C" fn finish() {
    // A child of fork has neither the threads nor whoever may hold the lock.
    if FORKS.get() != Some(&forks::count()) {
        return;
    }
    let reapers = std::mem::take(&mut *REAPERS.lock().unwrap_or_else(PoisonError::into_inner));
    let until = Instant::now() + PATIENCE;
    reapers.iter().filter_map(Weak::upgrade).for_each(|reaper| reaper.flush(Some(until)));
}
