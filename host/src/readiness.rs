//! Waits for file descriptors in a way that a cancellation ends at once.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crossdock_plugin_api::{CancelFlag, Result};

/// The timeout of one poll in milliseconds, if nothing can wake the wait.
pub(crate) const NAP_MS: u8 = 20;

/// Wakes waits for a file. Once woken, it stays woken, because its causes are permanent: a
/// cancellation or the end of the source.
#[derive(Clone)]
pub(crate) struct Waker(Option<Arc<OwnedFd>>);

impl Waker {
    /// Creates a waker. Without a free descriptor, waits poll instead.
    pub fn new() -> Self {
        // SAFETY: the call has no requirements.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the descriptor was just opened, and only the result owns it.
        Self((fd >= 0).then(|| Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Wakes the pending waits, and ends all further waits at once.
    pub fn wake(&self) {
        if let Some(fd) = &self.0 {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the buffer has the 8 bytes that the descriptor expects. The write fails only
            // if the counter is at its maximum, and then the waits are awake already.
            unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}

/// Waits until `file` is ready for `events` (`POLLIN`, `POLLOUT`), at its end, or broken. The read
/// or write that follows distinguishes these cases. `check` runs before every poll, and its error
/// ends the wait. Its result may change only after `cancel` was set or `waker` was woken. A
/// blocking read or write could not be ended reliably, because a signal that arrives just before
/// it would have no effect.
pub(crate) fn wait(
    file: &File,
    events: libc::c_short,
    cancel: &CancelFlag,
    waker: &Waker,
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    check()?;
    // The usual case is a file that is ready, for which nothing has to be set up.
    if poll(file, events, None, 0) {
        return Ok(());
    }
    let subscription = {
        let waker = waker.clone();
        cancel.as_cancel().subscribe(move || waker.wake())
    };
    let (fd, timeout) = match (&waker.0, &subscription) {
        (Some(fd), Ok(_)) => (Some(fd.as_raw_fd()), -1),
        _ => (None, NAP_MS.into()),
    };
    loop {
        check()?;
        if poll(file, events, fd, timeout) {
            return Ok(());
        }
    }
}

/// Whether `file` is ready. Returns `false` after the timeout, if `waker` is woken first, or if a
/// signal interrupts the call.
fn poll(file: &File, events: libc::c_short, waker: Option<libc::c_int>, timeout_ms: libc::c_int) -> bool {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    // A negative descriptor is ignored.
    let mut polled = [entry(file.as_raw_fd(), events), entry(waker.unwrap_or(-1), libc::POLLIN)];
    // SAFETY: the list has two initialised entries.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout_ms) };
    let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
    let [of_file, _] = polled;
    of_file.revents != 0 || (ready < 0 && !interrupted)
}
