//! Texts that are stored as codes, each of which stands for several bytes: how many bytes they decode to, and the bytes.

use crossdock_memory::{Buffer, BufferMut, Error, Result, Stream};

use crate::door::Args;
use crate::jobs::{JobArg, groups, warps_of};
use crate::table::kernel;
use crate::words::integers;
use crate::{Checks, Integers, Jobs, Source};

kernel!(
    MEASURE_CODES,
    c"crossdock_measure_codes",
    (
        codes: Read, width: Value, escapes: Value, offsets: Read, offset_width: Value, offset_signed: Value,
        table: Read, lengths: Read, shift: Value, marks: Write, starts: Write, sizes: Write,
        table_cell: Write, cell: Write
    ),
    measure
);
kernel!(ADD_SIZES, c"crossdock_add_sizes", (sizes: Write, cell: Write), add_sizes);
kernel!(
    DECODE_CODES,
    c"crossdock_decode_codes",
    (
        codes: Read, width: Value, escapes: Value, offsets: Read, offset_width: Value, offset_signed: Value,
        table: Read, lengths: Read, shift: Value, marks: Read, bases: Read, group: Value, to: Write
    ),
    decode
);
kernel!(
    MAKE_TOKENS,
    c"crossdock_make_tokens",
    (
        dictionary: Read, offsets: Read, offset_width: Value, offset_signed: Value, tokens: Write, lengths: Write,
        cell: Write
    ),
    make_tokens
);

/// The code that says, where there are escapes, that the next one stands for itself.
const ESCAPE: usize = 255;

/// Codes in a row, all of them escapes, beyond which nobody looks for where they began.
const LOOK_BACK: usize = 32 * 32 * 16;

/// Segments of codes that a warp takes at a time, as codes.cu has it.
const TILE: usize = 32;

/// Most chunks, for one block to add up.
const MOST_CHUNKS: usize = 1 << 14;

/// What stands, instead of at which byte of its segment it begins, for a code that stands for itself.
const NO_START: u8 = 255;

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

    /// What [`Begins`] are told.
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

/// The codes of a job, whose first arguments are those of [`Codes::args`].
struct Coded<'a> {
    codes: &'a [u8],
    width: usize,
    escapes: bool,
    table: &'a [u8],
    lengths: &'a [u8],
    /// Those that belong to values.
    first: usize,
    last: usize,
    shift: u32,
}

/// Which of `n` codes belong to values.
fn those_of_values(offsets: &[i64], n: usize) -> (usize, usize) {
    let place = |offset: Option<&i64>, least: usize| {
        offset.map_or(0, |at| usize::try_from(*at).unwrap_or(0).clamp(least, n))
    };
    let first = place(offsets.first(), 0);
    (first, place(offsets.last(), first))
}

/// Where codes begin that have been measured.
pub(crate) struct Begins<'a> {
    pub(crate) offsets: Vec<i64>,
    first: usize,
    last: usize,
    each: u32,
    shift: u32,
    marks: &'a [[u8; 4]],
    bases: &'a [[u8; 8]],
    starts: &'a [u8],
}

impl<'a> Begins<'a> {
    /// Of a job whose first arguments are those of [`Codes::begins_args`].
    pub(crate) fn of(args: &Args<'a>) -> Option<Self> {
        let offsets = integers(args.read(2)?, args.index(3)?, args.value(4)? != 0)?;
        let (first, last) = those_of_values(&offsets, args.index(0)?);
        let [each, shift] = [args.value(1)?, args.value(5)?].map(|number| number as u32);
        let (marks, bases) = (args.read(6)?.as_chunks().0, args.read(7)?.as_chunks().0);
        Some(Self { offsets, first, last, each, shift, marks, bases, starts: args.read(8)? })
    }

    /// The byte at which the code at an offset begins, or, after the last one, at which that ends; `None` where there is none
    /// or that stands for itself.
    pub(crate) fn begin(&self, offset: i64) -> Option<u64> {
        let at = usize::try_from(offset).ok().filter(|at| (self.first..=self.last).contains(at))?;
        let segment = at >> self.each;
        let base = u64::from_ne_bytes(*self.bases.get(segment >> self.shift)?) & !(1 << 63);
        let mark = u32::from_ne_bytes(*self.marks.get(segment)?) & !(1 << 31);
        let start = self.starts.get(at).filter(|start| **start != NO_START)?;
        Some(base + u64::from(mark) + u64::from(*start))
    }
}

/// A code, in turn.
struct Code<'a> {
    at: usize,
    /// Whether the one before it says that it stands for itself.
    itself: bool,
    bytes: &'a [u8],
}

impl<'a> Coded<'a> {
    fn of(args: &Args<'a>) -> Option<Self> {
        let (codes, width) = (args.read(0)?, args.index(1)?);
        let offsets = integers(args.read(3)?, args.index(4)?, args.value(5)? != 0)?;
        let (first, last) = those_of_values(&offsets, codes.len().checked_div(width)?);
        let escapes = args.value(2)? != 0;
        let (table, lengths) = (args.read(6)?, args.read(7)?);
        let shift = u32::try_from(args.value(8)?).ok()?;
        Some(Self { codes, width, escapes, table, lengths, first, last, shift })
    }

    fn each(&self) -> usize {
        if self.escapes { 16 } else { 8 }
    }

    fn code(&self, at: usize) -> usize {
        let bytes = self.codes.get(at * self.width..(at + 1) * self.width).unwrap_or_default();
        bytes.iter().rev().fold(0, |code, byte| code << 8 | usize::from(*byte))
    }

    /// What a code stands for: nothing where it is none.
    fn token(&self, code: usize) -> &'a [u8] {
        let slot = if self.escapes { 8 } else { TOKEN_BYTES };
        let length = self.lengths.get(code).map_or(0, |length| usize::from(*length));
        if length > slot || self.escapes && code == ESCAPE {
            return &[];
        }
        let token = self.table.get(code * slot..(code + 1) * slot).and_then(|token| token.get(..length));
        token.unwrap_or_default()
    }

    /// Also the place after the last, as a code of no bytes.
    fn each_code(&self, mut visit: impl FnMut(Code<'a>)) {
        let mut itself = false;
        for at in self.first..self.last {
            let code = self.code(at);
            let bytes = match itself {
                true => self.codes.get(at..=at).unwrap_or_default(),
                false => self.token(code),
            };
            visit(Code { at, itself, bytes });
            itself = self.escapes && code == ESCAPE && !itself;
        }
        visit(Code { at: self.last, itself, bytes: &[] });
    }
}

fn measure(args: Args<'_>) -> Option<()> {
    let coded = Coded::of(&args)?;
    let (marks, starts) = (args.write(9)?.as_chunks_mut::<4>().0, args.write(10)?);
    let sizes = args.write(11)?.as_chunks_mut::<8>().0;
    let chunk_codes = coded.each() << coded.shift;
    let mut all = vec![0u64; sizes.len()];
    let (mut wrong, mut begin) = (None, 0);
    coded.each_code(|code| {
        let chunk = code.at / chunk_codes;
        let Some(size) = all.get_mut(chunk) else { return };
        if code.at.is_multiple_of(chunk_codes) {
            *size |= u64::from(code.itself) << 63;
            let before = code.at.checked_sub(LOOK_BACK).filter(|at| *at >= coded.first);
            let before = before.filter(|_| coded.escapes).and_then(|at| coded.codes.get(at..code.at));
            if before.is_some_and(|before| before.iter().all(|code| usize::from(*code) == ESCAPE)) {
                wrong = wrong.or(Some(code.at));
            }
        }
        let own = *size as u32 & !(1 << 31);
        if code.at.is_multiple_of(coded.each()) || code.at == coded.first {
            begin = if code.at.is_multiple_of(coded.each()) { own } else { 0 };
            if let Some(mark) = marks.get_mut(code.at / coded.each()) {
                *mark = (begin | u32::from(code.itself) << 31).to_ne_bytes();
            }
        }
        if let Some(start) = starts.get_mut(code.at) {
            *start = if code.itself { NO_START } else { (own - begin) as u8 };
        }
        *size += code.bytes.len() as u64;
        let is_escape = coded.escapes && coded.code(code.at) == ESCAPE;
        if code.bytes.is_empty() && !is_escape && code.at < coded.last {
            wrong = wrong.or(Some(code.at));
        }
    });
    sizes.iter_mut().zip(all).for_each(|(to, size)| *to = size.to_ne_bytes());
    let bad = |length: &u8| !(1..=8).contains(length);
    let table = coded.lengths.iter().take(ESCAPE).position(bad).filter(|_| coded.escapes);
    args.found(12, table)?;
    args.found(13, wrong)
}

fn add_sizes(args: Args<'_>) -> Option<()> {
    const ITSELF: u64 = 1 << 63;
    let mut sum = 0;
    for entry in args.write(0)?.as_chunks_mut::<8>().0 {
        let size = u64::from_ne_bytes(*entry);
        *entry = (sum | size & ITSELF).to_ne_bytes();
        sum += size & !ITSELF;
    }
    *<&mut [u8; 8]>::try_from(args.write(1)?).ok()? = sum.to_ne_bytes();
    Some(())
}

fn decode(args: Args<'_>) -> Option<()> {
    let coded = Coded::of(&args)?;
    let to = args.write(12)?;
    let mut byte = 0;
    coded.each_code(|code| {
        if let Some(place) = to.get_mut(byte..byte + code.bytes.len()) {
            place.copy_from_slice(code.bytes);
        }
        byte += code.bytes.len();
    });
    Some(())
}

fn make_tokens(args: Args<'_>) -> Option<()> {
    let (dictionary, width) = (args.read(0)?, args.index(2)?);
    let offsets = integers(args.read(1)?, width, args.value(3)? != 0)?;
    let (tokens, lengths) = (args.write(4)?.as_chunks_mut::<TOKEN_BYTES>().0, args.write(5)?);
    let mut found = None;
    for (i, (to, length)) in tokens.iter_mut().zip(lengths).enumerate() {
        let (begin, end) = (*offsets.get(i)?, *offsets.get(i + 1)?);
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let token = range.and_then(|(begin, end)| dictionary.get(begin..end));
        let token = token.filter(|token| (1..=TOKEN_BYTES).contains(&token.len()));
        found = found.or(token.is_none().then_some(i));
        let token = token.unwrap_or_default();
        (*to, *length) = ([0; TOKEN_BYTES], token.len() as u8);
        to.iter_mut().zip(token).for_each(|(to, byte)| *to = *byte);
    }
    args.found(6, found)
}
