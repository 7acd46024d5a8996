//! One tree for several consumers, each of which takes its buffers.

use std::ffi::c_void;
use std::sync::Arc;

use super::EncodedArray;
use crate::abi;
use crate::door;
use crate::error::Result;
use crate::owned::{Owned, Release};

/// What the share's `private_data` points at.
struct Share {
    buffers: Vec<abi::EncodedBuffer>,
    // The nodes are its.
    _of: Arc<EncodedArray>,
}

impl EncodedArray {
    /// The same tree once more: nodes and bytes are those of this array, which lives until the share, and every buffer that was
    /// taken out of it, is released.
    ///
    /// # Errors
    /// A buffer of this array was taken.
    pub fn share(self: &Arc<Self>) -> Result<Self> {
        let mut buffers = Vec::with_capacity(self.raw.n_buffers);
        for index in 0..self.n_nodes() {
            let node = self.node(index)?;
            for i in 0..node.n_buffers() {
                let theirs = node.buffer_here(i)?;
                let private_data = Arc::into_raw(Arc::clone(self)).cast_mut().cast::<c_void>();
                let buffer = abi::EncodedBuffer {
                    // Theirs may be an older release's, which is shorter.
                    struct_size: size_of::<abi::EncodedBuffer>(),
                    private_data,
                    release: Some(release_buffer),
                    ..theirs
                };
                // SAFETY: the bytes and the event are this array's, which the buffer keeps; nobody else has the struct.
                buffers.push(unsafe { Owned::new(buffer) });
            }
        }
        let buffers = buffers.into_iter().map(Owned::into_raw).collect();
        let mut share = Box::new(Share { buffers, _of: Arc::clone(self) });
        let mut raw = abi::EncodedArray::new();
        (raw.nodes, raw.n_nodes) = (self.raw.nodes, self.raw.n_nodes);
        (raw.buffers, raw.n_buffers) = (share.buffers.as_mut_ptr(), share.buffers.len());
        raw.private_data = Box::into_raw(share).cast::<c_void>();
        raw.release = Some(release);
        // SAFETY: made above; its nodes are those of an array whose tree was found sound, and which it keeps.
        Ok(Self { raw: unsafe { Owned::new(raw) } })
    }
}

unsafe extern "C" fn release_buffer(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: set by `share` only, with a count of its own; released once because `release` is cleared.
    unsafe {
        (*buffer).release = None;
        let of = Arc::from_raw((*buffer).private_data.cast::<EncodedArray>());
        door::leave(|| drop(of));
    }
}

unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
    // SAFETY: set by `share` only; released once because `release` is cleared. Buffers that were taken are released structs by
    // now.
    unsafe {
        (*array).release = None;
        let mut share = Box::from_raw((*array).private_data.cast::<Share>());
        door::leave(|| {
            share.buffers.iter_mut().for_each(|buffer| buffer.release());
            drop(share);
        });
    }
}
