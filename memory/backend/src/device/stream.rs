//! The backend's streams.

use std::ffi::c_void;
use std::sync::atomic::AtomicBool;

/// A stream of one device. Its address is the handle that crosses the boundary.
pub(crate) struct Stream {
    /// The backend that it belongs to, so that handles of two backends cannot be mixed.
    pub backend: usize,
    pub device_index: usize,
    /// The native handle; NULL on devices without streams.
    pub raw: *mut c_void,
    /// Whether `raw` was passed to other code, which may use it without our knowledge.
    pub exposed: AtomicBool,
    /// Whether it is an external stream. Its owner may destroy it after the handle, so nothing that
    /// outlives the handle may refer to `raw`.
    pub adopted: bool,
}

impl Stream {
    pub(crate) const fn new(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(false), adopted: false }
    }

    /// An external stream.
    pub(crate) const fn adopted(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(true), adopted: true }
    }
}

// SAFETY: `raw` is only passed to the driver, which accepts it on any thread.
unsafe impl Send for Stream {}
// SAFETY: the mutable state is atomic, and the driver accepts `raw` on several threads at the same
// time.
unsafe impl Sync for Stream {}
