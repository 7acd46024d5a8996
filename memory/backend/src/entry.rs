//! A device of a backend, with its default stream.

use crate::device::{DeviceBackend, Stream};

/// A device, and its default stream.
pub(crate) struct Entry {
    pub backend: Box<dyn DeviceBackend>,
    pub default_stream: Stream,
}

impl Entry {
    /// `native` is the native handle of the default stream.
    pub(crate) fn new(
        backend: usize,
        index: usize,
        device: Box<dyn DeviceBackend>,
        native: *mut std::ffi::c_void,
    ) -> Self {
        Self { backend: device, default_stream: Stream::new(backend, index, native) }
    }
}
