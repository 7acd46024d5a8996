//! Lets several threads fill disjoint ranges of a block of host memory.

use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};

/// A block whose pieces are being filled.
pub struct PartitionedBlock {
    inner: Arc<Inner>,
    bytes: usize,
    /// Whether the block is pinned host memory, whose content is then copied to the device.
    is_staged: bool,
}

struct Inner {
    buffer: BufferMut,
    start: *mut u8,
}

// SAFETY: `start` points into `buffer`, which is `Send` and moves with it; a raw pointer has no
// thread affinity.
unsafe impl Send for Inner {}
// SAFETY: shared access through `start` is limited to pieces, whose ranges do not overlap; `finish`
// takes `buffer` only when no piece is left.
unsafe impl Sync for Inner {}

/// One range of a block, which one thread fills.
pub struct Piece {
    block: Arc<Inner>,
    offset: usize,
    bytes: usize,
}

impl Piece {
    /// The bytes of the range.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `PartitionedBlock::new` checked that the ranges lie in the block and do not
        // overlap, `block` keeps the memory alive, and pieces cannot be cloned, so `&mut self`
        // makes this the only reference into the range.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.add(self.offset), self.bytes) }
    }
}

impl PartitionedBlock {
    /// Allocates a block of `bytes` bytes for the device of `stream`, with a piece for each range
    /// (offset, length) of `cuts`. The ranges are ascending and do not overlap. The bytes between
    /// them are zeroed.
    pub fn new(
        memory: &Memory,
        stream: &Stream,
        bytes: usize,
        cuts: &[(usize, usize)],
    ) -> Result<(Self, Vec<Piece>)> {
        let is_staged = stream.device() != Device::CPU;
        // `Upload::finish` allocates the device's block.
        let mut buffer = if is_staged { memory.alloc_pinned(bytes)? } else { memory.alloc(stream, bytes)? };
        let block = buffer
            .host_slice_mut()
            .ok_or_else(|| Error::internal("the block of host memory is not accessible to the host"))?;
        let mut at = 0;
        for &(offset, length) in cuts {
            let gap = block.get_mut(at..offset);
            gap.ok_or_else(|| Error::internal(format!("a piece at {offset} overlaps the previous one")))?
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

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the block is for the host, and not uploaded.
    pub fn is_for_host(&self) -> bool {
        !self.is_staged
    }

    /// The block in host memory, once all pieces are dropped.
    pub fn finish(self) -> Result<Buffer> {
        let inner =
            Arc::try_unwrap(self.inner).map_err(|_| Error::internal("a block is still being filled"))?;
        Ok(inner.buffer.freeze_now())
    }

    /// The block while some pieces are still being filled, as source for copies of filled ones.
    pub fn as_source(&self) -> Buffer {
        let address = self.inner.buffer.address();
        let owner = ForeignOwner::new(self.inner.clone());
        // SAFETY: the owner holds `inner`, which keeps the `bytes` bytes of host memory alive.
        unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(self.bytes as u64), Ready::Now) }
    }
}
