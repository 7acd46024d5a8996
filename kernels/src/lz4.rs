//! Decompresses LZ4 frames.

use std::ops::Range;

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::Checks;
use crate::jobs::{JobArg, warps_of};
use crate::rows::DECOMPRESS_LZ4;

/// The size of the pieces of a buffer that is not compressed, as in `lz4.cu`.
const PLAIN_PIECE_BYTES: usize = 65536;

/// How the bytes of a buffer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lz4Content {
    /// They are not compressed.
    Plain,
    /// The blocks of a frame, its end mark, and less than 64 bytes of zeros. The blocks are
    /// independent. The number is that of the bytes of all blocks but the last, which may be
    /// shorter.
    Blocks(usize),
}

/// A list of buffers, as the kernel reads it.
#[derive(Clone, Debug, Default)]
pub struct Lz4Buffers {
    words: Vec<u8>,
    n_pieces: usize,
    longest: usize,
    bytes: usize,
}

impl Lz4Buffers {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer that is stored at `from`, and has `to` in the output. Its content must not be
    /// empty.
    pub fn push(&mut self, from: Range<usize>, to: Range<usize>, content: Lz4Content) {
        let (block, piece) = match content {
            Lz4Content::Plain => (0, PLAIN_PIECE_BYTES),
            Lz4Content::Blocks(bytes) => (bytes, bytes),
        };
        for word in [self.n_pieces, from.start, from.end, to.start, to.len(), block] {
            self.words.extend((word as u64).to_ne_bytes());
        }
        self.n_pieces += to.len().div_ceil(piece.max(1));
        self.longest = self.longest.max(piece.min(to.len()));
        self.bytes += to.len();
    }

    /// The list's bytes, which the kernel reads on its device.
    pub fn words(&self) -> &[u8] {
        &self.words
    }

    /// The number of pieces, each of which a warp decodes.
    pub fn n_pieces(&self) -> usize {
        self.n_pieces
    }

    /// The number of bytes of the longest piece.
    pub fn longest_piece(&self) -> usize {
        self.longest
    }

    /// The number of bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> Checks<'a> {
    /// Decompresses buffers to `range` of `to`. `words` are those of `buffers` on the device. The
    /// returned cell has the first buffer that cannot be decompressed; all bytes of this buffer are
    /// undefined.
    pub fn decompress_lz4(
        &mut self,
        from: &'a Buffer,
        buffers: &Lz4Buffers,
        words: &'a Buffer,
        to: &mut BufferMut,
        range: Range<usize>,
    ) -> Result<usize> {
        let all = |buffer: &'a Buffer| JobArg::Read(buffer, 0, buffer.len().unwrap_or(0));
        let cell = self.cells(1);
        let args = [
            all(from),
            all(words),
            JobArg::Value(buffers.n_pieces as u64),
            JobArg::write(to, range.start, range.len())?,
            JobArg::Cells(cell, 1),
        ];
        self.push(&DECOMPRESS_LZ4, warps_of(buffers.n_pieces), args)?;
        Ok(cell)
    }
}
