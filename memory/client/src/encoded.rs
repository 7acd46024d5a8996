//! Converts buffers from and to the buffers of encoded arrays.

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
        let device = Device::from_arrow(raw.device.r#type, raw.device.id);
        let (address, bytes, event) = (raw.address.addr() as u64, raw.bytes, raw.sync_event);
        let owner = ForeignOwner::new(Shared(raw));
        // SAFETY: by this function's contract the range is readable and the event alive until the
        // release of `raw`, which `owner` holds.
        unsafe {
            let ready = Ready::from_sync_event(event, &owner);
            Some(Buffer::foreign(&owner, device, address, Some(bytes), ready))
        }
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

/// A buffer of an encoded array that several [`Buffer`]s share.
struct Shared(#[allow(dead_code)] Owned<abi::EncodedBuffer>);

// SAFETY: the value is only dropped, by one thread; nothing accesses it through a shared reference.
unsafe impl Sync for Shared {}

unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: only `to_encoded` sets this callback, with a boxed `Buffer` as private data. The
    // callback runs once because it clears `release`.
    unsafe {
        (*buffer).release = None;
        let buffer = Box::from_raw((*buffer).private_data.cast::<Buffer>());
        crossdock_plugin_api::door::run_release(|| drop(buffer));
    }
}
