//! The services of the host that load the bodies of messages.

use crossdock_memory::{Loader, Memory, Stream};
use crossdock_plugin_api::{CancelFlag, Tasks};

/// The services that load a body.
pub struct Transport<'a> {
    /// Ends the loads of the reader, which may take longer than the call that starts them.
    pub cancel: &'a CancelFlag,
    /// The memory of the body.
    pub memory: &'a Memory,
    /// The stream of the copies.
    pub stream: &'a Stream,
    /// Loads bodies to devices.
    pub loader: &'a Loader,
    /// Runs jobs.
    pub tasks: &'a Tasks,
}
