//! Waits while too many files are in flight: a process has sent them over a Unix socket, and no
//! process has received them yet (unix(7)).

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

/// The pause before another attempt to send files. The system does not report when files are
/// received.
const PAUSE: Duration = Duration::from_millis(1);

/// Pauses after the system refused to send files (`ETOOMANYREFS`), before another attempt. Linux
/// limits the files in flight of all processes of a user to the limit on the open files of the
/// sender. The first attempt was at `start`.
///
/// # Errors
/// The attempts have taken longer than `timeout`.
pub fn pause_for_files_in_flight(start: Instant, timeout: Duration) -> io::Result<()> {
    if start.elapsed() <= timeout {
        std::thread::sleep(PAUSE);
        return Ok(());
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let message = format!(
        "more than {limit} files that processes of this user sent to other processes were not received for {timeout:?}: end \
         these processes, or raise the limit on open files (ulimit -n)"
    );
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, message))
}
