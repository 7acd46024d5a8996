//! Shares an encoded array between several consumers. Each consumer can take the buffers.

use std::ffi::c_void;
use std::sync::Arc;

use super::EncodedArray;
use crate::abi;
use crate::door;
use crate::error::Result;
use crate::owned::{Owned, Release};

/// The private data of a share.
struct Share {
    buffers: Vec<abi::EncodedBuffer>,
    // The original array owns the nodes.
    _original: Arc<EncodedArray>,
}

impl EncodedArray {
    /// Creates an array with the nodes and buffers of this array. The new array holds a reference
    /// to this array. Each buffer that a consumer takes from the new array holds a reference, too.
    ///
    /// # Errors
    /// Returns an error if a buffer of this array has been taken.
    pub fn share(self: &Arc<Self>) -> Result<Self> {
        let mut buffers = Vec::with_capacity(self.raw.n_buffers);
        for index in 0..self.n_nodes() {
            let node = self.node(index)?;
            for i in 0..node.n_buffers() {
                let original = node.available_buffer(i)?;
                let private_data = Arc::into_raw(Arc::clone(self)).cast_mut().cast::<c_void>();
                let buffer = abi::EncodedBuffer {
                    // The original buffer may have the lesser `struct_size` of an earlier version.
                    struct_size: size_of::<abi::EncodedBuffer>(),
                    private_data,
                    release: Some(release_buffer),
                    ..original
                };
                // SAFETY: the bytes and the event belong to this array, which `private_data` keeps
                // alive. There is no other copy of the buffer with this release function.
                buffers.push(unsafe { Owned::new(buffer) });
            }
        }
        let buffers = buffers.into_iter().map(Owned::into_raw).collect();
        let mut share = Box::new(Share { buffers, _original: Arc::clone(self) });
        let mut raw = abi::EncodedArray::new();
        (raw.nodes, raw.n_nodes) = (self.raw.nodes, self.raw.n_nodes);
        (raw.buffers, raw.n_buffers) = (share.buffers.as_mut_ptr(), share.buffers.len());
        raw.private_data = Box::into_raw(share).cast::<c_void>();
        raw.release = Some(release);
        // SAFETY: this function created the share with its release function. Its nodes belong to an
        // array with a valid tree, which the share keeps alive.
        Ok(Self { raw: unsafe { Owned::new(raw) } })
    }
}

unsafe extern "C" fn release_buffer(buffer: *mut abi::EncodedBuffer) {
    // SAFETY: only `share` sets this function, with a leaked `Arc` in `private_data`. Clearing
    // `release` ensures that this runs only once.
    unsafe {
        (*buffer).release = None;
        let original = Arc::from_raw((*buffer).private_data.cast::<EncodedArray>());
        door::run_release(|| drop(original));
    }
}

unsafe extern "C" fn release(array: *mut abi::EncodedArray) {
    // SAFETY: only `share` sets this function, with a boxed `Share`. Buffers that were taken are
    // released structs. Clearing `release` ensures that this runs only once.
    unsafe {
        (*array).release = None;
        let mut share = Box::from_raw((*array).private_data.cast::<Share>());
        door::run_release(|| {
            share.buffers.iter_mut().for_each(|buffer| buffer.release());
            drop(share);
        });
    }
}
