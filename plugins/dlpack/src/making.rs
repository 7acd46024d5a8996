//! What a batch's tensors need that is not there yet: bytes instead of bits, masks, copies. All of it in one allocation.

use crossdock_arrays::DeviceArray;
use crossdock_kernels::Jobs;
use crossdock_memory::{ALIGNMENT, Buffer, Copies, Error, Result, Stream};

/// A tensor's elements.
pub(crate) enum Elements {
    /// There are none.
    None,
    /// A range that is there, and whether it was made for this export.
    InPlace(Buffer, bool),
    /// So many bytes from here on in what is being made.
    Made(usize, usize),
}

/// What is to be made.
#[derive(Default)]
pub(crate) struct Making {
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
    /// Where the next piece begins.
    next: usize,
    /// Some of it is nothing but zeros.
    zeros: bool,
}

enum Piece {
    /// Bits as bytes, from this one on, so many, and perhaps inverted.
    Unpacked(Buffer, usize, usize, bool),
    Copied(Buffer),
}

/// What was made.
pub(crate) struct Made(Option<Buffer>);

impl Making {
    /// The bits of `from` from bit `first` on, as bytes.
    pub(crate) fn unpacked(&mut self, from: Buffer, first: usize, len: usize, invert: bool) -> Elements {
        self.pieces.push((self.next, Piece::Unpacked(from, first, len, invert)));
        self.take(len)
    }

    pub(crate) fn copied(&mut self, from: Buffer) -> Elements {
        let len = from.len().unwrap_or(0);
        self.pieces.push((self.next, Piece::Copied(from)));
        self.take(len)
    }

    /// One byte a row, 1 where it is null.
    pub(crate) fn mask(&mut self, array: &DeviceArray) -> Elements {
        let validity = array.buffers().first().and_then(Option::as_ref);
        match validity.filter(|_| array.null_count() != Some(0)) {
            Some(validity) => self.unpacked(validity.clone(), array.offset(), array.len(), true),
            None => {
                self.zeros |= !array.is_empty();
                self.take(array.len())
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Elements {
        let at = self.next;
        // Beyond what can be counted it is refused when it is asked for.
        self.bytes = at.saturating_add(bytes);
        self.next = self.bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        Elements::Made(at, bytes)
    }

    /// Makes it on `stream`.
    pub(crate) fn run(self, stream: &Stream) -> Result<Made> {
        if self.bytes == 0 {
            return Ok(Made(None));
        }
        let mut block = stream.memory().alloc(stream, self.bytes)?;
        if self.zeros {
            stream.fill(&mut block, 0, self.bytes, 0)?;
        }
        let (mut copies, mut jobs) = (Copies::new(), Jobs::new());
        for (at, piece) in &self.pieces {
            match piece {
                Piece::Unpacked(from, first, len, invert) => {
                    jobs.unpack_bits(from, *first, *len, *invert, &mut block, *at)?;
                }
                Piece::Copied(from) => copies.push(&mut block, *at, from, 0, from.len().unwrap_or(0))?,
            }
        }
        copies.submit(stream)?;
        jobs.launch(stream)?;
        Ok(Made(Some(block.freeze(stream)?)))
    }
}

impl Made {
    /// The elements' buffer, and whether it was made for this export.
    pub(crate) fn of(&self, elements: Elements) -> Result<(Option<Buffer>, bool)> {
        match (elements, &self.0) {
            (Elements::None, _) => Ok((None, true)),
            (Elements::InPlace(buffer, ours), _) => Ok((Some(buffer), ours)),
            (Elements::Made(_, 0), _) => Ok((None, true)),
            (Elements::Made(at, bytes), Some(block)) => Ok((Some(block.slice(at, bytes)?), true)),
            (Elements::Made(..), None) => Err(Error::internal("what was to be made is not there")),
        }
    }
}
