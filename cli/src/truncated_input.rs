//! Handles SIGBUS, which the system sends if a mapped input is truncated while it is read. The
//! library handles this signal only on request. The command uses its own handler instead, which
//! prints an error and removes the unfinished output.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::terminal;

const MESSAGE: &[u8] = b"error: an input was truncated while it was being read\n";
const CLEAR_BAR: &[u8] = b"\r\x1b[K";

/// The path of the unfinished output, which the handler removes.
static UNFINISHED: OnceLock<CString> = OnceLock::new();
/// Several threads may get the signal at the same time. Only one of them ends the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Makes the signal handler remove this file.
pub fn remove_on_signal(unfinished: &Path) {
    if let Ok(path) = CString::new(unfinished.as_os_str().as_bytes()) {
        // One path is enough, because a process has one output. Once the output is complete, no
        // file has the temporary path.
        let _ = UNFINISHED.set(path);
    }
}

/// Installs the handler.
pub fn install_handler() {
    // SAFETY: an all-zero sigaction is valid, and has an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(_, *mut libc::siginfo_t, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is valid. `on_signal` has the signature that SA_SIGINFO requires and makes
    // only async-signal-safe calls.
    unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
}

/// Uses only atomics and async-signal-safe calls.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    while IS_ENDING.swap(true, Ordering::Relaxed) {
        // SAFETY: pause is async-signal-safe and has no preconditions.
        unsafe { libc::pause() };
    }
    if let Some(path) = UNFINISHED.get() {
        // SAFETY: unlink is async-signal-safe, and the path is a `CString` in a static.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    // SAFETY: the handler is installed with SA_SIGINFO, so the system passes a valid `info`.
    if unsafe { (*info).si_code } == libc::BUS_ADRERR {
        for text in [if terminal::has_progress() { CLEAR_BAR } else { b"" }, MESSAGE] {
            // SAFETY: write is async-signal-safe, and `text` is valid for its length. Its failure
            // is ignored.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: _exit is async-signal-safe and has no preconditions.
        unsafe { libc::_exit(1) };
    }
    // For every cause of SIGBUS except an access after the end of a file, the default action
    // follows.
    // SAFETY: both calls are async-signal-safe, and `signal` is a valid signal. The system delivers
    // the raised signal when the handler returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
