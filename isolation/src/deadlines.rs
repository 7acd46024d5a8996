//! How long the process of an isolated plugin is waited for.

use std::time::Duration;

/// How long a process may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// A process that gives no sign of life for so long in a call is ended.
    pub silence: Option<Duration>,
    /// So is one that is in one call for so long, whatever it says of its progress.
    pub call: Option<Duration>,
}
