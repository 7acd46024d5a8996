//! Plans the unpacked booleans, masks and copies of one batch's tensors, and writes them to one
//! allocation.

use crossdock_arrays::DeviceArray;
use crossdock_kernels::Jobs;
use crossdock_memory::{ALIGNMENT, Buffer, Copies, Error, Result, Stream};

/// The location of a tensor's elements.
pub(crate) enum Elements {
    /// The tensor has no elements.
    None,
    /// A range of an existing buffer, and whether this buffer was allocated for the export.
    InPlace(Buffer, bool),
    /// A range of the staged block: its offset and its size, both in bytes.
    Staged(usize, usize),
}

/// The parts of the block that `run` allocates.
#[derive(Default)]
pub(crate) struct StagingPlan {
    /// The offset of each part in the block in bytes, and the way the part is produced.
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
    /// Offset of the next part in bytes, which is aligned.
    next: usize,
    /// Whether the block must be zeroed first. This is required for the masks of columns without
    /// nulls, because no job writes these masks.
    needs_zeros: bool,
}

enum Piece {
    /// Bits that are unpacked to bytes: the buffer, the first bit, the number of bits, and whether
    /// they are inverted.
    Unpack(Buffer, usize, usize, bool),
    Copy(Buffer),
}

/// The block that contains all staged elements; `None` if there are none.
pub(crate) struct Staged(Option<Buffer>);

impl StagingPlan {
    /// Plans to unpack bits `first..first + len` of `from` to bytes.
    pub(crate) fn unpack(&mut self, from: Buffer, first: usize, len: usize, invert: bool) -> Elements {
        self.pieces.push((self.next, Piece::Unpack(from, first, len, invert)));
        self.reserve(len)
    }

    pub(crate) fn copy(&mut self, from: Buffer) -> Elements {
        let len = from.len().unwrap_or(0);
        self.pieces.push((self.next, Piece::Copy(from)));
        self.reserve(len)
    }

    /// Plans a mask, which has one byte per row. The byte is 1 if the row is null.
    pub(crate) fn mask(&mut self, array: &DeviceArray) -> Elements {
        let validity = array.buffers().first().and_then(Option::as_ref);
        match validity.filter(|_| array.null_count() != Some(0)) {
            Some(validity) => self.unpack(validity.clone(), array.offset(), array.len(), true),
            None => {
                self.needs_zeros |= !array.is_empty();
                self.reserve(array.len())
            }
        }
    }

    fn reserve(&mut self, bytes: usize) -> Elements {
        let at = self.next;
        // If the sum saturates, the allocation rejects the size.
        self.bytes = at.saturating_add(bytes);
        self.next = self.bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        Elements::Staged(at, bytes)
    }

    /// Allocates the block, and enqueues on `stream` the work that fills it.
    pub(crate) fn run(self, stream: &Stream) -> Result<Staged> {
        if self.bytes == 0 {
            return Ok(Staged(None));
        }
        let mut block = stream.memory().alloc(stream, self.bytes)?;
        if self.needs_zeros {
            stream.fill(&mut block, 0, self.bytes, 0)?;
        }
        let (mut copies, mut jobs) = (Copies::new(), Jobs::new());
        for (at, piece) in &self.pieces {
            match piece {
                Piece::Unpack(from, first, len, invert) => {
                    jobs.unpack_bits(from, *first, *len, *invert, &mut block, *at)?;
                }
                Piece::Copy(from) => copies.push(&mut block, *at, from, 0, from.len().unwrap_or(0))?,
            }
        }
        copies.submit(stream)?;
        jobs.launch(stream)?;
        Ok(Staged(Some(block.freeze(stream)?)))
    }
}

impl Staged {
    /// Returns the buffer of the elements, and whether it was allocated for this export.
    pub(crate) fn resolve(&self, elements: Elements) -> Result<(Option<Buffer>, bool)> {
        match (elements, &self.0) {
            (Elements::None | Elements::Staged(_, 0), _) => Ok((None, true)),
            (Elements::InPlace(buffer, is_copy), _) => Ok((Some(buffer), is_copy)),
            (Elements::Staged(at, bytes), Some(block)) => Ok((Some(block.slice(at, bytes)?), true)),
            (Elements::Staged(..), None) => Err(Error::internal("a tensor was planned but not staged")),
        }
    }
}
