//! Lets several threads fill separate ranges of a block of host memory at the same time.

use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};

/// A block of host memory whose ranges are being filled.
pub struct PartitionedBlock {
    inner: Arc<Inner>,
    bytes: usize,
    /// Whether the block is pinned host memory. Its content is copied to the device after the block
    /// has been filled.
    is_staged: bool,
}

struct Inner {
    buffer: BufferMut,
    start: *mut u8,
}

// SAFETY: `start` points into `buffer`, which is `Send` and moves together with it. A raw pointer
// is not bound to a thread.
unsafe impl Send for Inner {}
// SAFETY: threads use `start` only through pieces, whose ranges do not overlap. `finish` takes
// `buffer` only after all pieces were dropped.
unsafe impl Sync for Inner {}

/// A range of a block. One thread fills it.
pub struct Piece {
    block: Arc<Inner>,
    offset: usize,
    bytes: usize,
}

impl Piece {
    /// The bytes of the range.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `PartitionedBlock::new` checked that the ranges are within the block and do not
        // overlap, and `block` keeps the memory alive. A piece cannot be cloned, so `&mut self`
        // guarantees that this is the only reference into the range.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.add(self.offset), self.bytes) }
    }
}

impl PartitionedBlock {
    /// Allocates a block of `bytes` bytes for the device of `stream`. It has a piece for each range
    /// (offset, length) in `cuts`. The ranges must be ascending and must not overlap. The bytes
    /// between the ranges are zeroed.
    pub fn new(
        memory: &Memory,
        stream: &Stream,
        bytes: usize,
        cuts: &[(usize, usize)],
    ) -> Result<(Self, Vec<Piece>)> {
        let is_staged = stream.device() != Device::CPU;
        // A staged block is allocated in host memory; `Upload::finish` allocates the block on the
        // device.
        let mut buffer = if is_staged { memory.alloc_pinned(bytes)? } else { memory.alloc(stream, bytes)? };
        let block = buffer
            .host_slice_mut()
            .ok_or_else(|| Error::internal("the block of host memory is not accessible to the host"))?;
        let mut at = 0;
        for &(offset, length) in cuts {
            let gap = block.get_mut(at..offset);
            gap.ok_or_else(|| Error::internal(format!("a piece at {offset} overlaps the previous piece")))?
                .fill(0);
            at = offset.saturating_add(length);
        }
        let rest = block.get_mut(at..);
        rest.ok_or_else(|| {
            Error::internal(format!("a piece ends at {at}, expected at most {bytes}, the end of the block"))
        })?
        .fill(0);
        let start = block.as_mut_ptr();
        let inner = Arc::new(Inner { buffer, start });
        let piece = |&(offset, bytes): &(usize, usize)| Piece { block: inner.clone(), offset, bytes };
        let pieces = cuts.iter().map(piece).collect();
        Ok((Self { inner, bytes, is_staged }, pieces))
    }

    /// Size of the block in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the block stays in host memory and is not copied to a device.
    pub fn is_for_host(&self) -> bool {
        !self.is_staged
    }

    /// Returns the block in host memory after all pieces were dropped.
    pub fn finish(self) -> Result<Buffer> {
        let inner =
            Arc::try_unwrap(self.inner).map_err(|_| Error::internal("a block is still being filled"))?;
        Ok(inner.buffer.freeze_now())
    }

    /// Returns the block while some pieces are still being filled. It is the source of copies of
    /// filled pieces.
    pub fn as_source(&self) -> Buffer {
        let address = self.inner.buffer.address();
        let owner = ForeignOwner::new(self.inner.clone());
        // SAFETY: the owner holds `inner`, which keeps the `bytes` bytes of host memory alive.
        unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(self.bytes as u64), Ready::Now) }
    }
}
