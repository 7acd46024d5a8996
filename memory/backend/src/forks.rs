//! Counts forks. A forked child inherits memory without the threads, lock owners and driver state
//! behind it, so that it must not release what was created before the fork.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Number of forks between the first call of this function and this process.
pub fn count() -> u32 {
    // No `OnceLock`: a child that is forked while another thread runs its initialiser would wait
    // for that thread forever. Two threads may both register the handler; the child then counts by
    // two.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler only increments a counter. If the system has no memory to register
        // it, forks are not counted.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_REGISTERED.store(true, Ordering::Release);
    }
    FORKS.load(Ordering::Relaxed)
}

unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
