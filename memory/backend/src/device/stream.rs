//! The backend's streams.

use std::ffi::c_void;
use std::sync::atomic::AtomicBool;

/// A stream of one device. Its address is the handle that crosses the boundary.
pub(crate) struct Stream {
    /// Identifies the backend that the stream belongs to. Other backends reject the handle.
    pub backend: usize,
    pub device_index: usize,
    /// The native handle; NULL on devices without streams.
    pub raw: *mut c_void,
    /// Whether `raw` was passed to other code, which may enqueue work that the backend cannot
    /// track.
    pub exposed: AtomicBool,
    /// Whether `raw` is an external stream. Its owner may destroy it once this handle has been
    /// destroyed, so nothing that outlives this handle may refer to `raw`.
    pub adopted: bool,
}

impl Stream {
    pub(crate) const fn new(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(false), adopted: false }
    }

    /// Creates the handle of an external stream.
    pub(crate) const fn adopted(backend: usize, device_index: usize, raw: *mut c_void) -> Self {
        Self { backend, device_index, raw, exposed: AtomicBool::new(true), adopted: true }
    }
}

// SAFETY: `raw` is only passed to the driver, which accepts it on any thread.
unsafe impl Send for Stream {}
// SAFETY: the mutable state is atomic, and the driver accepts `raw` on several threads at the same
// time.
unsafe impl Sync for Stream {}
