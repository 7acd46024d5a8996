//! Converts buffers from and to the buffers of encoded arrays.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Device, Owned, abi};

use crate::{Buffer, ForeignOwner, Ready};

impl Buffer {
    /// Takes ownership of `raw`, a buffer of an encoded array. `raw` is released when the last
    /// clone or slice of the returned buffer is dropped. Returns `None` if `raw` has 0 bytes.
    ///
    /// # Safety
    /// Until `raw` is released, its `address` refers to `bytes` readable bytes on `device`, and its
    /// `sync_event` is NULL or points to a live event.
    pub unsafe fn from_encoded(raw: Owned<abi::EncodedBuffer>) -> Option<Buffer> {
        if raw.bytes == 0 {
            return None;
        }
        // SAFETY: by this function's contract.
        unsafe { EncodedBuffers::new().add(raw) }
    }

    /// Exports this buffer as a buffer of an encoded array. A buffer of unknown length is exported
    /// with 0 bytes.
    pub fn to_encoded(&self) -> Owned<abi::EncodedBuffer> {
        let address = self.address();
        let buffer = Box::new(self.clone());
        let mut raw = abi::EncodedBuffer::new();
        raw.address = address as *const std::ffi::c_void;
        raw.bytes = self.len().unwrap_or(0) as u64;
        raw.alignment = if address == 0 { 1 } else { 1 << address.trailing_zeros().min(12) };
        raw.device = self.device();
        raw.sync_event = buffer.ready().sync_event();
        raw.private_data = Box::into_raw(buffer).cast();
        raw.release = Some(release);
        // SAFETY: `raw` was created above, and this is its only owner.
        unsafe { Owned::new(raw) }
    }
}

/// Buffers of an encoded array that are released together, after the last use of any of them. The
/// release of each buffer alone would query the events of its uses.
pub struct EncodedBuffers {
    owner: ForeignOwner,
    held: Arc<Mutex<Vec<Owned<abi::EncodedBuffer>>>>,
}

impl EncodedBuffers {
    /// Creates an empty list.
    pub fn new() -> Self {
        let held = Arc::default();
        Self { owner: ForeignOwner::new(Arc::clone(&held)), held }
    }

    /// Takes ownership of `raw`, like [`Buffer::from_encoded`].
    ///
    /// # Safety
    /// See [`Buffer::from_encoded`].
    pub unsafe fn add(&self, raw: Owned<abi::EncodedBuffer>) -> Option<Buffer> {
        if raw.bytes == 0 {
            return None;
        }
        let device = Device::from_arrow(raw.device.r#type, raw.device.id);
        let (address, bytes, event) = (raw.address.addr() as u64, raw.bytes, raw.sync_event);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(raw);
        // SAFETY: by this function's contract the range is readable and the event alive until the
        // release of `raw`, which `owner` holds.
        unsafe {
            let ready = Ready::from_sync_event(event, &self.owner);
            Some(Buffer::foreign(&self.owner, device, address, Some(bytes), ready))
        }
    }
}

impl Default for EncodedBuffers {
    fn default() -> Self {
        Self::new()
    }
}

unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: only `to_encoded` sets this callback, with a boxed `Buffer` as private data. The
    // callback runs once because it clears `release`.
    unsafe {
        (*buffer).release = None;
        let buffer = Box::from_raw((*buffer).private_data.cast::<Buffer>());
        crossdock_plugin_api::door::run_release(|| drop(buffer));
    }
}
