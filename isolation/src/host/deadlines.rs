//! Deadlines for the calls of a plugin's process.

use std::time::Duration;

/// How long the host waits for a plugin's process. A process that exceeds a deadline is killed.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For a sign of life during a call: a callback or the response.
    pub silence: Option<Duration>,
    /// For the response to a call.
    pub call: Option<Duration>,
}
