//! A block of host memory that several threads fill at once, each its own range.

use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};

/// The block, until all its pieces are filled.
pub struct Filling {
    inner: Arc<Inner>,
    bytes: usize,
    /// Whether the host cannot write to the device, so that the bytes go on from here by a copy.
    staged: bool,
}

struct Inner {
    buffer: BufferMut,
    start: *mut u8,
}

// SAFETY: `start` is only written through pieces, whose ranges do not overlap, and `buffer` is touched again only when
// no piece is left.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// One range of a block, for whoever fills it.
pub struct Piece {
    block: Arc<Inner>,
    offset: usize,
    bytes: usize,
}

impl Piece {
    /// The range, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Filling::new` cut the block, which `block` keeps alive, into ranges that do not overlap, one a
        // piece, and pieces are not cloned; `&mut self` makes this the only reference into the range.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.add(self.offset), self.bytes) }
    }
}

impl Filling {
    /// A block of `bytes` bytes for the device of `stream`, and its ranges `cuts`, given as offset and length, in order
    /// and without overlap. What lies between them is zeroed.
    pub fn new(
        memory: &Memory,
        stream: &Stream,
        bytes: usize,
        cuts: &[(usize, usize)],
    ) -> Result<(Self, Vec<Piece>)> {
        let staged = stream.device() != Device::CPU;
        // Elsewhere the device's own block comes when there is something to put into it.
        let mut buffer = if staged { memory.alloc_pinned(bytes)? } else { memory.alloc(stream, bytes)? };
        let block = buffer
            .host_slice_mut()
            .ok_or_else(|| Error::internal("the host cannot reach the host memory that it allocated"))?;
        let mut at = 0;
        for &(offset, length) in cuts {
            let gap = block.get_mut(at..offset);
            gap.ok_or_else(|| Error::internal(format!("a piece at {offset} overlaps the one before it")))?
                .fill(0);
            at = offset.saturating_add(length);
        }
        let rest = block.get_mut(at..);
        rest.ok_or_else(|| Error::internal(format!("a piece ends at {at} in a block of {bytes} bytes")))?
            .fill(0);
        let start = block.as_mut_ptr();
        let inner = Arc::new(Inner { buffer, start });
        let piece = |&(offset, bytes): &(usize, usize)| Piece { block: inner.clone(), offset, bytes };
        let pieces = cuts.iter().map(piece).collect();
        Ok((Self { inner, bytes, staged }, pieces))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the block is where it shall be when it is filled.
    pub fn is_for_host(&self) -> bool {
        !self.staged
    }

    /// The block of the host, when all its pieces are gone.
    pub fn finish(self) -> Result<Buffer> {
        let inner =
            Arc::try_unwrap(self.inner).map_err(|_| Error::internal("a block is still being filled"))?;
        Ok(inner.buffer.freeze_now())
    }

    /// The block while some of it is still being filled, for copies of what is not.
    pub fn as_source(&self) -> Buffer {
        let address = self.inner.buffer.address();
        let owner = ForeignOwner::new(self.inner.clone());
        // SAFETY: `inner`, which the owner holds, keeps the block; it is host memory that any byte may be read from.
        unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(self.bytes as u64), Ready::Now) }
    }
}
