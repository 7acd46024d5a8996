//! Buffers of encoded arrays, in and out.

use crossdock_plugin_api::{Device, Owned, abi};

use crate::{Buffer, ForeignOwner, Ready};

impl Buffer {
    /// The buffer of an encoded array, which is released when the last of what lies in it is gone; `None` where it has no
    /// bytes.
    ///
    /// # Safety
    /// Its maker vouches for so many bytes on its device, and for its event, until its release.
    pub unsafe fn of_encoded(raw: Owned<abi::EncodedBuffer>) -> Option<Buffer> {
        if raw.bytes == 0 {
            return None;
        }
        let device = Device::from_arrow(raw.device.r#type, raw.device.id);
        let (address, bytes, event) = (raw.address.addr() as u64, raw.bytes, raw.sync_event);
        let owner = ForeignOwner::new(Shared(raw));
        // SAFETY: the caller's word; the owner keeps the buffer, and with it the event.
        unsafe {
            let ready = Ready::from_sync_event(event, &owner);
            Some(Buffer::foreign(&owner, device, address, Some(bytes), ready))
        }
    }

    /// The range as a buffer of an encoded array. One of unknown length has no bytes.
    pub fn to_encoded(&self) -> Owned<abi::EncodedBuffer> {
        let address = self.address();
        let kept = Box::new(self.clone());
        let mut raw = abi::EncodedBuffer::new();
        raw.address = address as *const std::ffi::c_void;
        raw.bytes = self.len().unwrap_or(0) as u64;
        raw.alignment = if address == 0 { 1 } else { 1 << address.trailing_zeros().min(12) };
        raw.device = self.device();
        raw.sync_event = kept.ready().sync_event();
        raw.private_data = Box::into_raw(kept).cast();
        raw.release = Some(release);
        // SAFETY: made above; nobody else has it.
        unsafe { Owned::new(raw) }
    }
}

/// An encoded buffer that several buffers of ours lie in.
struct Shared(#[allow(dead_code)] Owned<abi::EncodedBuffer>);

// SAFETY: nothing is done with it but dropping it, on any one thread.
unsafe impl Sync for Shared {}

unsafe extern "C" fn release(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: set by `to_encoded` only; released once because `release` is cleared.
    unsafe {
        (*buffer).release = None;
        let kept = Box::from_raw((*buffer).private_data.cast::<Buffer>());
        crossdock_plugin_api::door::leave(|| drop(kept));
    }
}
