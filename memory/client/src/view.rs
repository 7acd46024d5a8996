//! Gives the host read access to the bytes of a buffer.

use std::ops::Deref;

use crossdock_plugin_api::{Error, Result};

use crate::{Buffer, BufferMut, Copies, Ready, Stream};

/// The bytes of a buffer on the host: the buffer's own memory if the host can reach it, a copy
/// otherwise.
pub struct HostView<'a>(Inner<'a>);

enum Inner<'a> {
    InPlace(&'a [u8]),
    Copied(BufferMut, *const u8),
}

impl<'a> HostView<'a> {
    /// The caller must have checked that the range is within the buffer.
    pub(crate) fn new(buffer: &'a Buffer, offset: usize, bytes: usize, stream: &Stream) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self(Inner::InPlace(&[])));
        }
        let memory = stream.memory();
        let address = buffer.address() + offset as u64;
        if let Some(start) = memory.host_address(buffer.device(), address, bytes) {
            match buffer.ready() {
                Ready::Now => {}
                Ready::After(event) => event.synchronize()?,
                foreign => {
                    stream.wait(foreign)?;
                    stream.synchronize()?;
                }
            }
            // SAFETY: `host_address` returned the start of `bytes` readable bytes, their event has
            // passed, and `buffer`, borrowed for 'a, keeps them alive. A frozen buffer is not
            // written any more.
            return Ok(Self(Inner::InPlace(unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) })));
        }
        let mut copy = memory.alloc_pinned(bytes)?;
        let slice = copy
            .host_slice_mut()
            .ok_or_else(|| Error::internal("the host cannot reach the pinned memory that it allocated"))?;
        let start = slice.as_ptr();
        let mut copies = Copies::new();
        copies.push_to_host(slice, buffer, offset)?;
        // If `submit` fails, a copy that it enqueued may still be writing to this memory.
        copies.submit(stream).inspect_err(|_| copy.owner().note_unknown_use())?;
        Ok(Self(Inner::Copied(copy, start)))
    }

    /// Whether the bytes were copied.
    pub fn is_copied(&self) -> bool {
        matches!(self.0, Inner::Copied(..))
    }
}

// SAFETY: memory is not bound to a thread. The pointer in `Copied` points to the memory of the
// `BufferMut` in the same variant, and that memory is only read from now on.
unsafe impl Send for HostView<'_> {}
// SAFETY: `&HostView` gives read access only.
unsafe impl Sync for HostView<'_> {}

impl Deref for HostView<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::InPlace(bytes) => bytes,
            // SAFETY: `start` points to the `copy.len()` host bytes of `copy`, which `self` owns
            // and `new` filled.
            Inner::Copied(copy, start) => unsafe { std::slice::from_raw_parts(*start, copy.len()) },
        }
    }
}
