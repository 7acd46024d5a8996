//! Plans the unpacked booleans, masks and copies of one batch's tensors, and produces them in one
//! allocation.

use crossdock_arrays::DeviceArray;
use crossdock_kernels::Jobs;
use crossdock_memory::{ALIGNMENT, Buffer, Copies, Error, Result, Stream};

/// Where a tensor's elements are.
pub(crate) enum Elements {
    /// The tensor has no elements.
    None,
    /// An existing range, and whether it was allocated for this export.
    InPlace(Buffer, bool),
    /// Offset and size in the staged block, in bytes.
    Staged(usize, usize),
}

/// The pieces of the block that `run` allocates.
#[derive(Default)]
pub(crate) struct StagingPlan {
    /// Offsets in the block, in bytes, and how each piece is produced.
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
    /// Offset of the next piece, aligned.
    next: usize,
    /// Whether the block must be zeroed first: masks of columns without nulls have no piece.
    needs_zeros: bool,
}

enum Piece {
    /// Bits to unpack to bytes: source, first bit, number of bits, whether they are inverted.
    Unpack(Buffer, usize, usize, bool),
    Copy(Buffer),
}

/// The block that holds all staged elements, if there are any.
pub(crate) struct Staged(Option<Buffer>);

impl StagingPlan {
    /// Unpacks `len` bits of `from` to bytes, from bit `first` on.
    pub(crate) fn unpack(&mut self, from: Buffer, first: usize, len: usize, invert: bool) -> Elements {
        self.pieces.push((self.next, Piece::Unpack(from, first, len, invert)));
        self.reserve(len)
    }

    pub(crate) fn copy(&mut self, from: Buffer) -> Elements {
        let len = from.len().unwrap_or(0);
        self.pieces.push((self.next, Piece::Copy(from)));
        self.reserve(len)
    }

    /// One byte per row: 1 where the row is null.
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
        // A size that saturates is rejected by the allocation.
        self.bytes = at.saturating_add(bytes);
        self.next = self.bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        Elements::Staged(at, bytes)
    }

    /// Allocates the block and enqueues the work that fills it on `stream`.
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
    /// The elements' buffer, and whether it was allocated for this export.
    pub(crate) fn resolve(&self, elements: Elements) -> Result<(Option<Buffer>, bool)> {
        match (elements, &self.0) {
            (Elements::None | Elements::Staged(_, 0), _) => Ok((None, true)),
            (Elements::InPlace(buffer, is_copy), _) => Ok((Some(buffer), is_copy)),
            (Elements::Staged(at, bytes), Some(block)) => Ok((Some(block.slice(at, bytes)?), true)),
            (Elements::Staged(..), None) => Err(Error::internal("a tensor was planned but not staged")),
        }
    }
}
