//! Handles Ctrl-C. The first Ctrl-C cancels the work and leaves no unfinished output. The second
//! Ctrl-C ends the process.

use std::sync::OnceLock;

use crossdock::api::CancelFlag;

static FLAG: OnceLock<CancelFlag> = OnceLock::new();

/// Makes SIGINT and SIGTERM set `flag`.
pub fn cancel_on_signal(flag: &CancelFlag) {
    if FLAG.set(flag.clone()).is_err() {
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // The flags do not contain SA_RESTART, so that a signal interrupts a blocked read or write.
        // SAFETY: an all-zero sigaction is valid. It has an empty mask and no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        // SAFETY: `action` is valid, and `on_signal` makes only async-signal-safe calls.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Uses only atomics and async-signal-safe calls.
extern "C" fn on_signal(signal: libc::c_int) {
    match FLAG.get() {
        Some(flag) if !flag.is_cancelled() => flag.cancel(),
        // SAFETY: both calls are async-signal-safe, and `signal` is a valid signal.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        },
    }
}
