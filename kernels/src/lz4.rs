//! Decompresses LZ4 frames.

use std::ops::Range;

use crossdock_memory::{Buffer, BufferMut, Result};

use crate::Checks;
use crate::jobs::{JobArg, warps_of};
use crate::rows::{DECOMPRESS_LZ4, RESOLVE_LZ4};

/// The size of the pieces of a buffer that is not compressed, as in `lz4.cu`.
const PLAIN_PIECE_BYTES: usize = 65536;

/// The number of pieces of a group, as in `lz4.cu`.
const GROUP_PIECES: usize = 16;

/// The size of the words of a buffer, as in `lz4.cu`.
const WORDS_BYTES: usize = 6 * 8;

/// A flag of a frame whose blocks are linked, as in `lz4.cu`.
const IS_LINKED: u64 = 1 << 63;

/// How the bytes of a buffer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lz4Content {
    /// They are not compressed.
    Plain,
    /// The blocks of a frame, its end mark, and less than 64 bytes of zeros.
    Blocks {
        /// The number of bytes of all blocks but the last, which may be shorter.
        block_bytes: usize,
        /// Whether matches may refer to the block before.
        are_linked: bool,
    },
}

/// A list of buffers, as the kernels read it.
#[derive(Clone, Debug, Default)]
pub struct Lz4Buffers {
    words: Vec<u8>,
    n_pieces: usize,
    longest: usize,
    bytes: usize,
    has_linked: bool,
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
            Lz4Content::Blocks { block_bytes, are_linked } => {
                self.has_linked |= are_linked;
                (block_bytes as u64 | if are_linked { IS_LINKED } else { 0 }, block_bytes)
            }
        };
        let words = [self.n_pieces, from.start, from.end, to.start, to.len()].map(|word| word as u64);
        for word in words.into_iter().chain([block]) {
            self.words.extend(word.to_ne_bytes());
        }
        self.n_pieces += to.len().div_ceil(piece.max(1));
        self.longest = self.longest.max(piece.min(to.len()));
        self.bytes += to.len();
    }

    /// The number of bytes of scratch memory for an output of `bytes` bytes, which must be zero: 0
    /// if no frame has linked blocks.
    pub fn scratch_bytes(&self, bytes: usize) -> usize {
        if self.has_linked { bytes.saturating_mul(2) } else { 0 }
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

    /// Whether a frame has linked blocks.
    pub fn has_linked(&self) -> bool {
        self.has_linked
    }

    /// The number of bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<'a> Checks<'a> {
    /// Decompresses buffers to a range of `to`. `words` are those of `buffers` on the device, and
    /// the range of `scratch` has the number of zeros of [`Lz4Buffers::scratch_bytes`]. The
    /// returned cell has the first buffer that cannot be decompressed; all bytes of this buffer are
    /// undefined.
    pub fn decompress_lz4(
        &mut self,
        from: &'a Buffer,
        buffers: &Lz4Buffers,
        words: &'a Buffer,
        (to, range): (&mut BufferMut, Range<usize>),
        (scratch, scratch_range): (&mut BufferMut, Range<usize>),
    ) -> Result<usize> {
        let all = |buffer: &'a Buffer| JobArg::Read(buffer, 0, buffer.len().unwrap_or(0));
        let cell = self.cells(1);
        let args = [
            all(from),
            all(words),
            JobArg::Value(buffers.n_pieces as u64),
            JobArg::write(to, range.start, range.len())?,
            JobArg::write(scratch, scratch_range.start, scratch_range.len())?,
            JobArg::Cells(cell, 1),
        ];
        self.push(&DECOMPRESS_LZ4, warps_of(buffers.n_pieces), args)?;
        let n_groups = buffers.n_pieces.div_ceil(GROUP_PIECES);
        let n_buffers = buffers.words.len() / WORDS_BYTES;
        let steps = [n_groups, n_buffers, buffers.n_pieces];
        for (step, blocks) in steps.into_iter().enumerate().filter(|_| buffers.has_linked) {
            let args = [
                all(words),
                JobArg::Value(buffers.n_pieces as u64),
                JobArg::Value(step as u64),
                JobArg::write(to, range.start, range.len())?,
                JobArg::write(scratch, scratch_range.start, scratch_range.len())?,
            ];
            self.push_after(&RESOLVE_LZ4, step, blocks.min(65536) as u32, args)?;
        }
        Ok(cell)
    }
}
