//! Values that lie in parts: sums of whole numbers times factors, and floats cut in two.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::door::Args;
use crate::jobs::{JobArg, blocks, long_blocks};
use crate::table::kernel;
use crate::widen::integers;
use crate::{Checks, IntType, Integers, bits};

kernel!(
    SUM,
    c"crossdock_sum",
    (to: Write, validity: Read, first: Value, cell: Write),
    [from: Read, type: Value, factor: Value],
    sum
);
kernel!(
    JOIN,
    c"crossdock_join",
    (
        codes: Read, validity: Read, first: Value, rights: Read, right_bits: Value, named: Value, to: Write,
        width: Value, cell: Write
    ),
    [left: Value],
    join
);

/// As parts.cu has them.
const MOST_FACTOR: u64 = 1 << 60;
const MOST_PARTS: usize = 4;
const MOST_LEFTS: usize = 8;

/// What is added to a sum: numbers, each so many times.
pub type Part<'a> = (Integers<'a>, u64);

/// The left parts of words.
#[derive(Clone, Copy, Debug)]
pub enum Lefts<'a> {
    /// At most eight, which codes number.
    Named(&'a [u16]),
    /// They are the codes themselves.
    AsTheyAre,
}

/// Words that were cut in two: `len` left parts of 2 bytes, or their codes, from a byte of a buffer on; and as many right parts,
/// of as many bytes as a word has.
#[derive(Clone, Copy, Debug)]
pub struct Halves<'a> {
    /// Left parts, or codes, and the byte at which they begin.
    pub codes: (&'a Buffer, usize),
    /// Right parts, and the byte at which they begin.
    pub rights: (&'a Buffer, usize),
    /// How many bits of a word are of its right part.
    pub right_bits: u32,
    /// How many words.
    pub len: usize,
    /// 4 or 8.
    pub width_bytes: usize,
}

impl<'a> Checks<'a> {
    /// Writes sums of up to four parts, each with a factor below 2^60, as numbers of 8 bytes with a sign, which wrap. The cell
    /// says which was the first that those do not hold and that is not null (`validity`: bitmap and its first bit).
    pub fn sum(
        &mut self,
        parts: &[Part<'a>],
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let [(first, _), ..] = parts else { return Err(Error::internal("a sum of no parts")) };
        let alike = |(part, factor): &Part<'_>| {
            part.len == first.len && [1, 2, 4, 8].contains(&part.of.width_bytes) && *factor < MOST_FACTOR
        };
        if parts.len() > MOST_PARTS || !parts.iter().all(alike) {
            return Err(Error::internal(format!("{parts:?} have no sum here")));
        }
        let [bits, shift] = bits::optional_args(validity, first.len, first.buffer);
        let target = JobArg::write(to, at, first.len.saturating_mul(8))?;
        let cell = self.cells(1);
        let head = [target, bits, shift, JobArg::Cells(cell, 1)];
        let tail = parts.iter().flat_map(|(part, factor)| {
            let [read, code] = part.args();
            [read, code, JobArg::Value(*factor)]
        });
        self.push(&SUM, blocks(first.len.saturating_mul(8)), head.into_iter().chain(tail))?;
        Ok(cell)
    }

    /// Writes words of left and right parts; of right parts the bits above count for nothing. The cell says which code was the
    /// first that numbers no left part and is not null (`validity`: bitmap and its first bit), or which left part the first that
    /// has too many bits.
    pub fn join(
        &mut self,
        halves: Halves<'a>,
        lefts: Lefts<'_>,
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let Halves { codes, rights, right_bits, len, width_bytes: width } = halves;
        let lefts_ = if let Lefts::Named(lefts) = lefts { lefts } else { &[] };
        let bits_of_word = 8 * width as u32;
        if ![4, 8].contains(&width)
            || lefts_.len() > MOST_LEFTS
            || right_bits == 0
            || right_bits >= bits_of_word
        {
            return Err(Error::internal(format!("{halves:?} of {lefts:?} are no words")));
        }
        let [bits, shift] = bits::optional_args(validity, len, codes.0);
        let bytes = len.saturating_mul(width);
        let target = JobArg::write(to, at, bytes)?;
        let cell = self.cells(1);
        let args = [
            JobArg::Read(codes.0, codes.1, len.saturating_mul(2)),
            bits,
            shift,
            JobArg::Read(rights.0, rights.1, bytes),
            JobArg::Value(right_bits.into()),
            JobArg::Value(matches!(lefts, Lefts::Named(_)).into()),
            target,
            JobArg::Value(width as u64),
            JobArg::Cells(cell, 1),
        ];
        let lefts = lefts_.iter().map(|left| JobArg::Value((*left).into()));
        self.push(&JOIN, long_blocks(bytes), args.into_iter().chain(lefts))?;
        Ok(cell)
    }
}

fn sum(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 4;
    let (to, validity, first) = (args.write(0)?.as_chunks_mut::<8>().0, args.read(1)?, args.index(2)?);
    let mut sums = vec![0i128; to.len()];
    for i in (FIRST..args.len()).step_by(3) {
        let (from, of) = (args.read(i)?, IntType::of_code(args.index(i + 1)?)?);
        let factor = args.value(i + 2).filter(|factor| *factor < MOST_FACTOR)?;
        if of.width_bytes > 8 || from.len() / of.width_bytes < to.len() {
            return None;
        }
        for (sum, number) in sums.iter_mut().zip(integers(from, of)?) {
            *sum = sum.wrapping_add(number.wrapping_mul(factor.into()));
        }
    }
    to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = (*sum as i64).to_ne_bytes());
    let wrong =
        |(i, sum): &(usize, &i128)| i64::try_from(**sum).is_err() && bits::is_set(validity, first + i);
    args.found(3, sums.iter().enumerate().find(wrong).map(|(i, _)| i))
}

fn join(args: Args<'_>) -> Option<()> {
    const FIRST: usize = 9;
    let (codes, validity, first) = (args.read(0)?.as_chunks::<2>().0, args.read(1)?, args.index(2)?);
    let (rights, right_bits, named) = (args.read(3)?, args.value(4)? as u32, args.value(5)? != 0);
    let (to, width) = (args.write(6)?, args.index(7)?);
    let lefts: Vec<u64> = (FIRST..args.len()).map(|i| args.value(i)).collect::<Option<_>>()?;
    let n = to.len().checked_div(width)?;
    let left_bits = (8 * width as u32).checked_sub(right_bits)?;
    if ![4, 8].contains(&width) || codes.len() < n || rights.len() / width < n || lefts.len() > MOST_LEFTS {
        return None;
    }
    let limit = if named { lefts.len() as u64 } else { 1u64.checked_shl(left_bits)? };
    let mut found = None;
    let pairs = codes.iter().zip(rights.chunks_exact(width));
    for (i, (to, (code, right))) in to.chunks_exact_mut(width).zip(pairs).enumerate() {
        let code = u64::from(u16::from_ne_bytes(*code));
        let left = if named { lefts.get(code as usize % MOST_LEFTS).copied().unwrap_or(0) } else { code };
        let mut word = [0; 8];
        word.iter_mut().zip(right).for_each(|(to, from)| *to = *from);
        let joined = left.checked_shl(right_bits)? | u64::from_le_bytes(word) & ((1 << right_bits) - 1);
        to.copy_from_slice(joined.to_le_bytes().get(..width)?);
        found = found.or((code >= limit && bits::is_set(validity, first + i)).then_some(i));
    }
    args.found(8, found)
}
