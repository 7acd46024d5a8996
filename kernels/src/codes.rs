//! Decodes strings that are stored as codes, each of which stands for several bytes.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::jobs::{JobArg, groups, warps_of};
use crate::rows::{ADD_SIZES, DECODE_CODES, MAKE_TOKENS, MEASURE_CODES};
use crate::{Checks, Integers, Jobs, Source};

/// Number of segments (16 bytes of codes each) that a warp processes at a time, as in `codes.cu`.
const TILE: usize = 32;

/// Maximum number of chunks. It is limited because one block adds up the sizes of all chunks.
const MAX_CHUNKS: usize = 1 << 14;

/// Bytes per token in a table of tokens.
pub const TOKEN_BYTES: usize = 16;

/// The codes of all values, concatenated.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    /// The codes.
    pub codes: Source<'a>,
    /// Bytes per code: 1 or 2.
    pub width_bytes: usize,
    /// For each value, the index of its first code; then the index after the last value's last
    /// code.
    pub offsets: Integers<'a>,
    /// The token of each code: 8 bytes each if there are escapes, else [`TOKEN_BYTES`].
    pub table: Source<'a>,
    /// The length of each token, one byte each, at least 1.
    pub lengths: Source<'a>,
    /// Whether code 255 is an escape: the next code is a literal byte. Only for codes of one byte.
    pub escapes: bool,
}

/// The positions of the decoded bytes, written by [`Checks::measure_codes`]. With these positions,
/// a thread can start decoding anywhere in the codes.
pub struct Marks<B> {
    /// For each segment, the position of its first byte in its chunk.
    marks: B,
    /// For each chunk, the position of its first byte.
    bases: B,
    /// For each code, the position of its first byte in its segment, one byte each.
    starts: B,
}

impl<'a> Codes<'a> {
    /// Codes per segment.
    fn segment_codes(&self) -> usize {
        if self.escapes { 16 } else { 8 }
    }

    /// The number of segments, including the segment that contains the end position.
    fn segments(&self) -> usize {
        self.codes.len / self.segment_codes() + 1
    }

    fn tiles(&self) -> usize {
        self.segments().div_ceil(TILE)
    }

    /// The binary logarithm of the segments per chunk. A chunk is a whole number of tiles.
    fn shift(&self) -> u32 {
        let tiles = self.tiles().div_ceil(MAX_CHUNKS).max(1).next_power_of_two();
        tiles.ilog2() + TILE.ilog2()
    }

    fn chunks(&self) -> usize {
        self.segments().div_ceil(1 << self.shift())
    }

    fn args(&self) -> Result<[JobArg<'a>; 9]> {
        let width = self.width_bytes;
        if !(width == 1 || width == 2 && !self.escapes) {
            return Err(Error::internal(format!("a kernel cannot decode codes of {width} bytes")));
        }
        let [offsets, offset_width, signed] = self.offsets.args_by_width()?;
        Ok([
            self.codes.arg(width),
            JobArg::Value(width as u64),
            JobArg::Value(self.escapes.into()),
            offsets,
            offset_width,
            signed,
            self.table.arg(if self.escapes { 8 } else { TOKEN_BYTES }),
            self.lengths.arg(1),
            JobArg::Value(self.shift().into()),
        ])
    }

    /// The arguments for finding where codes begin.
    pub(crate) fn begins_args(&self, marks: &'a Marks<Buffer>) -> Result<[JobArg<'a>; 9]> {
        let [offsets, width, signed] = self.offsets.args_by_width()?;
        let [marks, bases, starts] = marks.args();
        let (n, segment_shift) = (self.codes.len as u64, u64::from(self.segment_codes().ilog2()));
        let shift = JobArg::Value(self.shift().into());
        Ok([
            JobArg::Value(n),
            JobArg::Value(segment_shift),
            offsets,
            width,
            signed,
            shift,
            marks,
            bases,
            starts,
        ])
    }
}

impl Marks<BufferMut> {
    /// Allocates the marks of the given codes.
    pub fn alloc(stream: &Stream, codes: &Codes<'_>) -> Result<Self> {
        let marks = stream.memory().alloc(stream, codes.segments().saturating_mul(4))?;
        let bases = stream.memory().alloc(stream, codes.chunks().saturating_mul(8))?;
        let starts = stream.memory().alloc(stream, codes.segments().saturating_mul(codes.segment_codes()))?;
        Ok(Self { marks, bases, starts })
    }

    /// Makes the marks readable for decoding.
    pub fn freeze(self, stream: &Stream) -> Result<Marks<Buffer>> {
        let [marks, bases, starts] =
            [self.marks, self.bases, self.starts].map(|buffer| buffer.freeze(stream));
        Ok(Marks { marks: marks?, bases: bases?, starts: starts? })
    }
}

impl Marks<Buffer> {
    /// The three buffers as arguments.
    fn args(&self) -> [JobArg<'_>; 3] {
        [&self.marks, &self.bases, &self.starts]
            .map(|buffer| JobArg::Read(buffer, 0, buffer.len().unwrap_or(0)))
    }
}

/// The cells of [`Checks::measure_codes`].
#[derive(Clone, Copy, Debug)]
pub struct CodeCells {
    /// The first token whose length is not 1 to 8 bytes. Used only if there are escapes.
    pub table: usize,
    /// The first code without a token, or the first code of a chunk with too many preceding
    /// escapes. For such a chunk, the kernel cannot decide whether the first code is a literal
    /// byte.
    pub code: usize,
    /// The number of decoded bytes, as a [number](crate::Findings::number).
    pub bytes: usize,
}

impl<'a> Checks<'a> {
    /// Measures the decoded sizes of codes. Offsets that are out of range are clamped to the range
    /// of the codes.
    pub fn measure_codes(&mut self, codes: Codes<'a>, marks: &mut Marks<BufferMut>) -> Result<CodeCells> {
        let first = self.cells(3);
        let [table, code, bytes] = [first, first + 1, first + 2];
        let chunks = codes.chunks();
        let to = [
            JobArg::write(&mut marks.marks, 0, codes.segments() * 4)?,
            JobArg::write(&mut marks.starts, 0, codes.segments() * codes.segment_codes())?,
            JobArg::write(&mut marks.bases, 0, chunks * 8)?,
            JobArg::Cells(table, 1),
            JobArg::Cells(code, 1),
        ];
        self.push(&MEASURE_CODES, warps_of(chunks), codes.args()?.into_iter().chain(to))?;
        let sizes = JobArg::write(&mut marks.bases, 0, chunks * 8)?;
        self.push(&ADD_SIZES, 1, [sizes, JobArg::Cells(bytes, 1)])?;
        Ok(CodeCells { table, code, bytes })
    }

    /// Writes the tokens of a dictionary, [`TOKEN_BYTES`] each, and their lengths. Token `i` begins
    /// at offset `i` and ends at offset `i + 1`. The returned cell has the first token that is not
    /// within the dictionary, or whose length is not 1 to 16 bytes.
    pub fn make_tokens(
        &mut self,
        dictionary: Source<'a>,
        offsets: Integers<'a>,
        tokens: &mut BufferMut,
        lengths: &mut BufferMut,
    ) -> Result<usize> {
        let n = offsets.len.saturating_sub(1);
        let cell = self.cells(1);
        let [read, width, signed] = offsets.args_by_width()?;
        let args = [
            dictionary.arg(1),
            read,
            width,
            signed,
            JobArg::write(tokens, 0, n * TOKEN_BYTES)?,
            JobArg::write(lengths, 0, n)?,
            JobArg::Cells(cell, 1),
        ];
        self.push(&MAKE_TOKENS, warps_of(n.div_ceil(32)), args)?;
        Ok(cell)
    }
}

impl<'a> Jobs<'a> {
    /// Decodes codes to bytes `at..at + bytes`. [`Checks::measure_codes`] must have measured the
    /// codes without an error.
    pub fn decode_codes(
        &mut self,
        codes: Codes<'a>,
        marks: &'a Marks<Buffer>,
        to: &mut BufferMut,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        let (group, blocks) = groups(codes.tiles());
        let to = [JobArg::Value(group as u64), JobArg::write(to, at, bytes)?];
        let [marks, bases, _] = marks.args();
        let args = codes.args()?.into_iter().chain([marks, bases]).chain(to);
        self.push(&DECODE_CODES, blocks, args)
    }
}
