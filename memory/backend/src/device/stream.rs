//! Streams, as the backend knows them.

use std::ffi::c_void;
use std::sync::atomic::AtomicBool;

/// A queue on one device. Its address is the handle that crosses the boundary.
pub(crate) struct Stream {
    /// Whose it is: handles of two backends must not mix.
    pub backend: usize,
    pub device_index: usize,
    /// The device's own handle, null where there is none.
    pub raw: *mut c_void,
    /// Whether others have `raw`: what they do with it we do not see.
    pub exposed: AtomicBool,
    /// Whether it is a stranger's, who may destroy it once the handle to it is: nothing that lasts refers to `raw`.
    pub adopted: bool,
}

impl Stream {
    pub(crate) const fn new(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(false), adopted: false }
    }

    /// One that a stranger made, and keeps.
    pub(crate) const fn adopted(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(true), adopted: true }
    }
}

// SAFETY: `raw` is only handed on; no device binds a stream to a thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}
