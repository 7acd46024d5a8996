//! Forked children: they inherit memory without the threads, the locks' holders and the driver's state behind it, so what
//! was made before the fork is not given back in them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that first asked and this one.
pub fn count() -> u32 {
    // No `OnceLock`: a child that is forked off while another thread is in its initialiser would wait for that thread for ever.
    // Two threads may both register the handler; the child then counts by two.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) {
        // SAFETY: the handler does nothing but count. Where the system has no memory for it, nobody is told of forks.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        WATCHED.store(true, Ordering::Release);
    }
    FORKS.load(Ordering::Relaxed)
}

unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
