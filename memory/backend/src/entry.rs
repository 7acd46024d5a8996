//! What a backend has of each device.

use crate::device::{DeviceBackend, Stream};

/// A device, and its default stream.
pub(crate) struct Entry {
    pub backend: Box<dyn DeviceBackend>,
    pub default_stream: Stream,
}

impl Entry {
    /// `raw` is the default stream's own handle.
    pub(crate) fn new(
        backend: usize,
        index: usize,
        device: Box<dyn DeviceBackend>,
        raw: *mut std::ffi::c_void,
    ) -> Self {
        Self { backend: device, default_stream: Stream::new(backend, index, raw) }
    }
}
