//! Decodes strings that are stored as codes, each of which stands for several bytes.

use crossdock_kernels::TOKEN_BYTES;

use crate::door::Args;
use crate::words::integers;

/// The escape code: the next code is a literal byte.
const ESCAPE: usize = 255;

/// If at least this number of consecutive escape codes precedes a chunk, the CUDA kernel reports an
/// error, because it cannot decide whether the chunk begins with a literal byte.
const LOOK_BACK: usize = 32 * 32 * 16;

/// Marks a literal byte in `starts`, where no value may begin.
const NO_START: u8 = 255;

/// The codes of a job, read from the first arguments of the job. The launcher's `Codes::args`
/// returns these arguments.
struct Coded<'a> {
    codes: &'a [u8],
    width: usize,
    escapes: bool,
    table: &'a [u8],
    lengths: &'a [u8],
    /// The range of codes that belong to values.
    first: usize,
    last: usize,
    shift: u32,
}

/// The range of the codes that belong to values, among `n` codes.
fn used_range(offsets: &[i64], n: usize) -> (usize, usize) {
    let clamped = |offset: Option<&i64>, min: usize| {
        offset.map_or(0, |at| usize::try_from(*at).unwrap_or(0).clamp(min, n))
    };
    let first = clamped(offsets.first(), 0);
    (first, clamped(offsets.last(), first))
}

/// The positions of measured codes.
pub(crate) struct Begins<'a> {
    pub(crate) offsets: Vec<i64>,
    first: usize,
    last: usize,
    segment_shift: u32,
    shift: u32,
    marks: &'a [[u8; 4]],
    bases: &'a [[u8; 8]],
    starts: &'a [u8],
}

impl<'a> Begins<'a> {
    /// Reads the arguments of a job. The launcher's `Codes::begins_args` returns the first of these
    /// arguments.
    pub(crate) fn from_args(args: &Args<'a>) -> Option<Self> {
        let offsets = integers(args.read(2)?, args.index(3)?, args.value(4)? != 0)?;
        let (first, last) = used_range(&offsets, args.index(0)?);
        let [segment_shift, shift] = [args.value(1)?, args.value(5)?].map(|number| number as u32);
        let (marks, bases) = (args.read(6)?.as_chunks().0, args.read(7)?.as_chunks().0);
        Some(Self { offsets, first, last, segment_shift, shift, marks, bases, starts: args.read(8)? })
    }

    /// The position, in the decoded bytes, of the code at `offset`. At the last offset, this is the
    /// end of the last code. `None` if the offset is out of range or refers to a literal byte.
    pub(crate) fn begin(&self, offset: i64) -> Option<u64> {
        let at = usize::try_from(offset).ok().filter(|at| (self.first..=self.last).contains(at))?;
        let segment = at >> self.segment_shift;
        let base = u64::from_ne_bytes(*self.bases.get(segment >> self.shift)?) & !(1 << 63);
        let mark = u32::from_ne_bytes(*self.marks.get(segment)?) & !(1 << 31);
        let start = self.starts.get(at).filter(|start| **start != NO_START)?;
        Some(base + u64::from(mark) + u64::from(*start))
    }
}

/// One code of the sequence that [`Coded::for_each_code`] visits.
struct Code<'a> {
    at: usize,
    /// Whether an escape precedes the code, so that the code is a literal byte.
    is_literal: bool,
    bytes: &'a [u8],
}

impl<'a> Coded<'a> {
    fn from_args(args: &Args<'a>) -> Option<Self> {
        let (codes, width) = (args.read(0)?, args.index(1)?);
        let offsets = integers(args.read(3)?, args.index(4)?, args.value(5)? != 0)?;
        let (first, last) = used_range(&offsets, codes.len().checked_div(width)?);
        let escapes = args.value(2)? != 0;
        let (table, lengths) = (args.read(6)?, args.read(7)?);
        let shift = u32::try_from(args.value(8)?).ok()?;
        Some(Self { codes, width, escapes, table, lengths, first, last, shift })
    }

    fn segment_codes(&self) -> usize {
        if self.escapes { 16 } else { 8 }
    }

    fn code(&self, at: usize) -> usize {
        let bytes = self.codes.get(at * self.width..(at + 1) * self.width).unwrap_or_default();
        bytes.iter().rev().fold(0, |code, byte| code << 8 | usize::from(*byte))
    }

    /// The token of a code; empty if the code has none.
    fn token(&self, code: usize) -> &'a [u8] {
        let slot = if self.escapes { 8 } else { TOKEN_BYTES };
        let length = self.lengths.get(code).map_or(0, |length| usize::from(*length));
        if length > slot || self.escapes && code == ESCAPE {
            return &[];
        }
        let token = self.table.get(code * slot..(code + 1) * slot).and_then(|token| token.get(..length));
        token.unwrap_or_default()
    }

    /// Visits all codes, and finally the end position, which is passed as a code without bytes.
    fn for_each_code(&self, mut visit: impl FnMut(Code<'a>)) {
        let mut is_literal = false;
        for at in self.first..self.last {
            let code = self.code(at);
            let bytes = match is_literal {
                true => self.codes.get(at..=at).unwrap_or_default(),
                false => self.token(code),
            };
            visit(Code { at, is_literal, bytes });
            is_literal = self.escapes && code == ESCAPE && !is_literal;
        }
        visit(Code { at: self.last, is_literal, bytes: &[] });
    }
}

pub(crate) fn measure(args: Args<'_>) -> Option<()> {
    let coded = Coded::from_args(&args)?;
    let (marks, starts) = (args.write(9)?.as_chunks_mut::<4>().0, args.write(10)?);
    let sizes = args.write(11)?.as_chunks_mut::<8>().0;
    let chunk_codes = coded.segment_codes() << coded.shift;
    let mut all = vec![0u64; sizes.len()];
    let (mut wrong, mut begin) = (None, 0);
    coded.for_each_code(|code| {
        let chunk = code.at / chunk_codes;
        let Some(size) = all.get_mut(chunk) else { return };
        if code.at.is_multiple_of(chunk_codes) {
            *size |= u64::from(code.is_literal) << 63;
            let before = code.at.checked_sub(LOOK_BACK).filter(|at| *at >= coded.first);
            let before = before.filter(|_| coded.escapes).and_then(|at| coded.codes.get(at..code.at));
            if before.is_some_and(|before| before.iter().all(|code| usize::from(*code) == ESCAPE)) {
                wrong = wrong.or(Some(code.at));
            }
        }
        let position = *size as u32 & !(1 << 31);
        if code.at.is_multiple_of(coded.segment_codes()) || code.at == coded.first {
            begin = if code.at.is_multiple_of(coded.segment_codes()) { position } else { 0 };
            if let Some(mark) = marks.get_mut(code.at / coded.segment_codes()) {
                *mark = (begin | u32::from(code.is_literal) << 31).to_ne_bytes();
            }
        }
        if let Some(start) = starts.get_mut(code.at) {
            *start = if code.is_literal { NO_START } else { (position - begin) as u8 };
        }
        *size += code.bytes.len() as u64;
        let is_escape = coded.escapes && coded.code(code.at) == ESCAPE;
        if code.bytes.is_empty() && !is_escape && code.at < coded.last {
            wrong = wrong.or(Some(code.at));
        }
    });
    sizes.iter_mut().zip(all).for_each(|(to, size)| *to = size.to_ne_bytes());
    let is_wrong = |length: &u8| !(1..=8).contains(length);
    let table = coded.lengths.iter().take(ESCAPE).position(is_wrong).filter(|_| coded.escapes);
    args.report_wrong(12, table)?;
    args.report_wrong(13, wrong)
}

pub(crate) fn add_sizes(args: Args<'_>) -> Option<()> {
    const IS_LITERAL: u64 = 1 << 63;
    let mut sum = 0;
    for entry in args.write(0)?.as_chunks_mut::<8>().0 {
        let size = u64::from_ne_bytes(*entry);
        *entry = (sum | size & IS_LITERAL).to_ne_bytes();
        sum += size & !IS_LITERAL;
    }
    *<&mut [u8; 8]>::try_from(args.write(1)?).ok()? = sum.to_ne_bytes();
    Some(())
}

pub(crate) fn decode(args: Args<'_>) -> Option<()> {
    let coded = Coded::from_args(&args)?;
    let to = args.write(12)?;
    let mut byte = 0;
    coded.for_each_code(|code| {
        if let Some(place) = to.get_mut(byte..byte + code.bytes.len()) {
            place.copy_from_slice(code.bytes);
        }
        byte += code.bytes.len();
    });
    Some(())
}

pub(crate) fn make_tokens(args: Args<'_>) -> Option<()> {
    let (dictionary, width) = (args.read(0)?, args.index(2)?);
    let offsets = integers(args.read(1)?, width, args.value(3)? != 0)?;
    let (tokens, lengths) = (args.write(4)?.as_chunks_mut::<TOKEN_BYTES>().0, args.write(5)?);
    let mut first_wrong = None;
    for (i, (to, length)) in tokens.iter_mut().zip(lengths).enumerate() {
        let (begin, end) = (*offsets.get(i)?, *offsets.get(i + 1)?);
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let token = range.and_then(|(begin, end)| dictionary.get(begin..end));
        let token = token.filter(|token| (1..=TOKEN_BYTES).contains(&token.len()));
        first_wrong = first_wrong.or(token.is_none().then_some(i));
        let token = token.unwrap_or_default();
        (*to, *length) = ([0; TOKEN_BYTES], token.len() as u8);
        to.iter_mut().zip(token).for_each(|(to, byte)| *to = *byte);
    }
    args.report_wrong(6, first_wrong)
}
