//! Counts forks. A forked child inherits the memory of its parent, but not the threads, lock owners
//! and driver state that belong to it. Therefore the child must not release objects that were
//! created before the fork.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Number of forks between the process that first called this function and the current process.
pub fn count() -> u32 {
    // This is not a `OnceLock`, because a child that is forked while another thread runs the
    // initialiser would wait for that thread forever. Two threads may both register the handler.
    // Each fork is then counted twice.
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
