//! Deadlines for the calls of a plugin's process.

use std::time::Duration;

/// The time that the host waits for a plugin's process. The host kills a process that exceeds a
/// deadline.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// The maximum time without a sign of life during a call. Callbacks and the response are signs
    /// of life.
    pub silence: Option<Duration>,
    /// The maximum time until the response to a call.
    pub call: Option<Duration>,
}
