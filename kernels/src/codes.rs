//! Texts that are stored as codes, each of which stands for several bytes: how many bytes they decode to, and the bytes.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::jobs::{JobArg, groups, warps_of};
use crate::rows::{ADD_SIZES, DECODE_CODES, MAKE_TOKENS, MEASURE_CODES};
use crate::{Checks, Integers, Jobs, Source};

/// Segments of codes that a warp takes at a time, as codes.cu has it.
const TILE: usize = 32;

/// Most chunks, for one block to add up.
const MOST_CHUNKS: usize = 1 << 14;

/// Bytes of a token in its table.
pub const TOKEN_BYTES: usize = 16;

/// Texts as codes: all values' lie one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    /// The codes.
    pub codes: Source<'a>,
    /// Bytes of a code: 1 or 2.
    pub width_bytes: usize,
    /// Where each value's codes begin, and where the last one's end.
    pub offsets: Integers<'a>,
    /// What codes stand for: 8 bytes each where there are escapes, else [`TOKEN_BYTES`].
    pub table: Source<'a>,
    /// How many of those count, a byte each: at least one.
    pub lengths: Source<'a>,
    /// Whether code 255, of codes of a byte, says that the next one stands for itself.
    pub escapes: bool,
}

/// What is known of codes once they have been measured, so that threads can begin in the middle of them.
pub struct Marks<B> {
    /// Of each segment, at which byte of its chunk it begins.
    marks: B,
    /// Of each chunk, at which byte it begins.
    bases: B,
    /// Of each code, at which byte of its segment it begins: one each.
    starts: B,
}

impl<'a> Codes<'a> {
    /// Codes of a segment.
    fn each(&self) -> usize {
        if self.escapes { 16 } else { 8 }
    }

    /// With one that has the place after the last code.
    fn segments(&self) -> usize {
        self.codes.len / self.each() + 1
    }

    fn tiles(&self) -> usize {
        self.segments().div_ceil(TILE)
    }

    /// A chunk has `1 << shift` segments, which are whole tiles.
    fn shift(&self) -> u32 {
        let tiles = self.tiles().div_ceil(MOST_CHUNKS).max(1).next_power_of_two();
        tiles.ilog2() + TILE.ilog2()
    }

    fn chunks(&self) -> usize {
        self.segments().div_ceil(1 << self.shift())
    }

    fn args(&self) -> Result<[JobArg<'a>; 9]> {
        let width = self.width_bytes;
        if !(width == 1 || width == 2 && !self.escapes) {
            return Err(Error::internal(format!("a kernel was asked for codes of {width} bytes")));
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

    /// What the kernels are given that look up where codes begin.
    pub(crate) fn begins_args(&self, marks: &'a Marks<Buffer>) -> Result<[JobArg<'a>; 9]> {
        let [offsets, width, signed] = self.offsets.args_by_width()?;
        let [marks, bases, starts] = marks.args();
        let (n, each) = (self.codes.len as u64, u64::from(self.each().ilog2()));
        let shift = JobArg::Value(self.shift().into());
        Ok([JobArg::Value(n), JobArg::Value(each), offsets, width, signed, shift, marks, bases, starts])
    }
}

impl Marks<BufferMut> {
    /// Room for those of such codes.
    pub fn room(stream: &Stream, codes: &Codes<'_>) -> Result<Self> {
        let marks = stream.memory().alloc(stream, codes.segments().saturating_mul(4))?;
        let bases = stream.memory().alloc(stream, codes.chunks().saturating_mul(8))?;
        let starts = stream.memory().alloc(stream, codes.segments().saturating_mul(codes.each()))?;
        Ok(Self { marks, bases, starts })
    }

    /// To decode with.
    pub fn freeze(self, stream: &Stream) -> Result<Marks<Buffer>> {
        let [marks, bases, starts] =
            [self.marks, self.bases, self.starts].map(|buffer| buffer.freeze(stream));
        Ok(Marks { marks: marks?, bases: bases?, starts: starts? })
    }
}

impl Marks<Buffer> {
    /// Marks, bases, and starts.
    fn args(&self) -> [JobArg<'_>; 3] {
        [&self.marks, &self.bases, &self.starts]
            .map(|buffer| JobArg::Read(buffer, 0, buffer.len().unwrap_or(0)))
    }
}

/// The cells of [`Checks::measure_codes`].
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The first entry of the table that has no bytes, or too many; not looked at where there are no escapes.
    pub table: usize,
    /// The first code that the table does not have, or the first of a chunk before which nobody knows where escapes begin.
    pub code: usize,
    /// To how many bytes they decode, as a [number](crate::Findings::number).
    pub bytes: usize,
}

impl<'a> Checks<'a> {
    /// Measures what codes decode to. Offsets that are outside of the codes are taken for the nearest that are not.
    pub fn measure_codes(&mut self, codes: Codes<'a>, marks: &mut Marks<BufferMut>) -> Result<Measured> {
        let first = self.cells(3);
        let [table, code, bytes] = [first, first + 1, first + 2];
        let chunks = codes.chunks();
        let to = [
            JobArg::write(&mut marks.marks, 0, codes.segments() * 4)?,
            JobArg::write(&mut marks.starts, 0, codes.segments() * codes.each())?,
            JobArg::write(&mut marks.bases, 0, chunks * 8)?,
            JobArg::Cells(table, 1),
            JobArg::Cells(code, 1),
        ];
        self.push(&MEASURE_CODES, warps_of(chunks), codes.args()?.into_iter().chain(to))?;
        let sizes = JobArg::write(&mut marks.bases, 0, chunks * 8)?;
        self.push(&ADD_SIZES, 1, [sizes, JobArg::Cells(bytes, 1)])?;
        Ok(Measured { table, code, bytes })
    }

    /// Writes the tokens of a dictionary, at [`TOKEN_BYTES`] each, and their lengths: token `i` lies between its offset and
    /// the next. The cell says which was the first that is not of 1 to 16 bytes of the dictionary.
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
    /// Decodes codes that have been measured, and found right, to bytes `at..at + bytes`.
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
