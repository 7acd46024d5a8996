//! Values that lie in parts: sums of whole numbers times factors, and floats cut in two.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks, long_blocks};
use crate::limits::{MOST_FACTOR, MOST_LEFTS};
use crate::rows::{JOIN, SUM};
use crate::{Checks, Integers, bits};

/// As parts.cu has it.
const MOST_PARTS: usize = 4;

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
