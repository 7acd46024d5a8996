//! A mapped input that somebody cuts short while it is being read: the system takes the ground from under the reader
//! and sends SIGBUS. The library leaves signals to applications; this one ends with a line, and leaves no file.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::terminal;

const LINE: &[u8] = b"crossdock: error: an input was cut short while it was being read\n";
const CLEAR_BAR: &[u8] = b"\r\x1b[K";

/// An unfinished output that has a name, to be removed.
static UNFINISHED: OnceLock<CString> = OnceLock::new();
/// Several threads may look at what is gone at once: one of them ends the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// What is to be removed then.
pub fn removes(unfinished: &Path) {
    if let Ok(path) = CString::new(unfinished.as_os_str().as_bytes()) {
        // There is one output in a process's life, and this stays when it has moved to its place.
        let _ = UNFINISHED.set(path);
    }
}

/// From now on SIGBUS ends the process in an orderly way.
pub fn ends_the_process() {
    // SAFETY: all zero is a valid sigaction, with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(_, *mut libc::siginfo_t, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: a valid action whose handler only does what a handler may.
    unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
}

/// Atomics, and async-signal-safe calls only.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    while ENDING.swap(true, Ordering::Relaxed) {
        // SAFETY: pause is async-signal-safe.
        unsafe { libc::pause() };
    }
    if let Some(path) = UNFINISHED.get() {
        // SAFETY: unlink is async-signal-safe, and the path is NUL-terminated and lives for ever.
        unsafe { libc::unlink(path.as_ptr()) };
    }
    // SAFETY: with SA_SIGINFO, the system gives the signal's description.
    if unsafe { (*info).si_code } == libc::BUS_ADRERR {
        for text in [if terminal::has_progress() { CLEAR_BAR } else { b"" }, LINE] {
            // SAFETY: write is async-signal-safe, and the bytes are constants. That it may fail changes nothing.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(1) };
    }
    // Not a page beyond a file's end: what the system does by default.
    // SAFETY: both are async-signal-safe, on a signal that was just delivered and will be again when this returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
