//! Handles Ctrl-C: the first one cancels the work, which leaves no unfinished output; the second
//! one ends the process.

use std::sync::OnceLock;

use crossdock::api::CancelFlag;

static FLAG: OnceLock<CancelFlag> = OnceLock::new();

/// Makes SIGINT and SIGTERM set `flag`.
pub fn cancel_on_signal(flag: &CancelFlag) {
    if FLAG.set(flag.clone()).is_err() {
        return;
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // Without SA_RESTART, a blocked read or write returns.
        // SAFETY: an all-zero sigaction is valid, and has an empty mask and no flags.
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
