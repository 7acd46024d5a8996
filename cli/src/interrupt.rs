//! Ctrl-C: the first asks the work to stop, which leaves nothing behind; the second ends the process.

use std::sync::OnceLock;

use crossdock::api::CancelFlag;

static FLAG: OnceLock<CancelFlag> = OnceLock::new();

/// From now on SIGINT and SIGTERM set `flag`.
pub fn cancels(flag: &CancelFlag) {
    if FLAG.set(flag.clone()).is_err() {
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zero is a valid sigaction, with an empty mask and no flags: in particular no SA_RESTART, so that
        // a read or write that waits comes back.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        // SAFETY: a valid action whose handler only does what a handler may.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Loads and stores of atomics, and the two calls: all of them allowed in a signal handler.
extern "C" fn on_signal(signal: libc::c_int) {
    match FLAG.get() {
        Some(flag) if !flag.is_cancelled() => flag.cancel(),
        // SAFETY: both are async-signal-safe, on a signal that was just delivered.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        },
    }
}
