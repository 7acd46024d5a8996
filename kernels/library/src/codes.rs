//! Texts that are stored as codes, each of which stands for several bytes: how many bytes they decode to, and the bytes.

use crossdock_kernels::TOKEN_BYTES;

use crate::door::Args;
use crate::words::integers;

/// The code that says, where there are escapes, that the next one stands for itself.
const ESCAPE: usize = 255;

/// Codes in a row, all of them escapes, beyond which nobody looks for where they began.
const LOOK_BACK: usize = 32 * 32 * 16;

/// What stands, instead of at which byte of its segment it begins, for a code that stands for itself.
const NO_START: u8 = 255;

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

pub(crate) fn measure(args: Args<'_>) -> Option<()> {
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

pub(crate) fn add_sizes(args: Args<'_>) -> Option<()> {
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

pub(crate) fn decode(args: Args<'_>) -> Option<()> {
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

pub(crate) fn make_tokens(args: Args<'_>) -> Option<()> {
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
