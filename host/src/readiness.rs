//! Waits for file descriptors with a short timeout, so that waits can be cancelled.

use std::fs::File;
use std::os::fd::AsRawFd;

use crossdock_plugin_api::Result;

/// The timeout of one poll in milliseconds.
pub(crate) const NAP_MS: u8 = 20;

/// Waits until `file` is ready for `events` (`POLLIN`, `POLLOUT`), at its end, or broken. The read
/// or write that follows distinguishes these cases. `check` runs before every poll, and its error
/// ends the wait. A blocking read or write could not be ended reliably, because a signal that
/// arrives just before it would have no effect.
pub(crate) fn wait(file: &File, events: libc::c_short, check: impl Fn() -> Result<()>) -> Result<()> {
    loop {
        check()?;
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
        // SAFETY: `poll` is one initialised pollfd with an open descriptor.
        let ready = unsafe { libc::poll(&mut poll, 1, NAP_MS.into()) };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if ready > 0 || (ready < 0 && !interrupted) {
            return Ok(());
        }
    }
}
