//! Defines what the readers of a file share.

use std::sync::Arc;

use crossdock_memory::{Loader, Memory, StoredSource};
use crossdock_plugin_api::{Host, Tasks};

use crate::footer::{Footer, Segment};

/// The interfaces of the host that a reader uses.
#[derive(Clone)]
pub struct Context {
    pub host: Host,
    pub memory: Memory,
    pub loader: Loader,
    pub tasks: Tasks,
}

/// An open file.
pub struct File {
    pub source: Arc<StoredSource>,
    pub segments: Arc<[Segment]>,
    pub footer: Footer,
}
