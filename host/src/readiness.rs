//! Waiting for a descriptor in short naps, so that whoever waits can be told to stop.

use std::fs::File;
use std::os::fd::AsRawFd;

use crossdock_plugin_api::Result;

/// How long a nap is.
pub(crate) const NAP_MS: u8 = 20;

/// Waits until `file` is ready for `events` (`POLLIN`, `POLLOUT`), at its end or broken, all of which the call that
/// follows tells apart. `check` is asked before every nap, and its error ends the wait: a plain read or write would
/// sleep on, for a signal that comes just before it wakes nobody.
pub(crate) fn wait(file: &File, events: libc::c_short, check: impl Fn() -> Result<()>) -> Result<()> {
    loop {
        check()?;
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
        // SAFETY: one pollfd, ours, for an open descriptor.
        let ready = unsafe { libc::poll(&mut poll, 1, NAP_MS.into()) };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if ready > 0 || (ready < 0 && !interrupted) {
            return Ok(());
        }
    }
}
