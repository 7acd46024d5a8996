//! Combines values that are stored in parts: sums of integers times factors, and floats split into
//! two parts.

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::jobs::{JobArg, blocks, long_blocks};
use crate::limits::{FACTOR_LIMIT, MAX_LEFT_PARTS};
use crate::rows::{JOIN, SUM};
use crate::{Checks, Integers, bits};

/// Maximum number of parts of a sum, as in `parts.cu`.
const MAX_PARTS: usize = 4;

/// A part of a sum: integers and their factor.
pub type Part<'a> = (Integers<'a>, u64);

/// How the left parts of words are stored.
#[derive(Clone, Copy, Debug)]
pub enum LeftParts<'a> {
    /// The words have codes, which refer to a dictionary of at most eight left parts.
    Dictionary(&'a [u16]),
    /// The words have the left parts themselves instead of codes.
    Inline,
}

/// `len` words that are split into left parts and right parts. A left part has 2 bytes, and may be
/// replaced by a code. A right part has the width of a word.
#[derive(Clone, Copy, Debug)]
pub struct Halves<'a> {
    /// The buffer of left parts or codes, and the byte at which the left parts or codes begin.
    pub codes: (&'a Buffer, usize),
    /// The buffer of right parts, and the byte at which the right parts begin.
    pub rights: (&'a Buffer, usize),
    /// The number of bits of a right part.
    pub right_bits: u32,
    /// The number of words.
    pub len: usize,
    /// Bytes per word: 4 or 8.
    pub width_bytes: usize,
}

impl<'a> Checks<'a> {
    /// Multiplies up to four parts by their factors, which must be below 2^60, and writes the sums
    /// as signed integers of 8 bytes. Sums wrap. The returned cell has the first valid sum
    /// (`validity`: bitmap and its first bit) that overflows.
    pub fn sum(
        &mut self,
        parts: &[Part<'a>],
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let [(first, _), ..] = parts else { return Err(Error::internal("a sum has no parts")) };
        let is_valid = |(part, factor): &Part<'_>| {
            part.len == first.len && [1, 2, 4, 8].contains(&part.of.width_bytes) && *factor < FACTOR_LIMIT
        };
        if parts.len() > MAX_PARTS || !parts.iter().all(is_valid) {
            return Err(Error::internal(format!("a kernel cannot sum {parts:?}")));
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

    /// Joins left and right parts to words. Bits of a right part beyond its declared number of bits
    /// are ignored. The returned cell has the first valid code (`validity`: bitmap and its first
    /// bit) that is out of range, or the first left part with too many bits.
    pub fn join(
        &mut self,
        halves: Halves<'a>,
        lefts: LeftParts<'_>,
        validity: Option<(&'a Buffer, usize)>,
        to: &mut BufferMut,
        at: usize,
    ) -> Result<usize> {
        let Halves { codes, rights, right_bits, len, width_bytes: width } = halves;
        let dictionary = if let LeftParts::Dictionary(lefts) = lefts { lefts } else { &[] };
        let bits_of_word = 8 * width as u32;
        if ![4, 8].contains(&width)
            || dictionary.len() > MAX_LEFT_PARTS
            || right_bits == 0
            || right_bits >= bits_of_word
        {
            return Err(Error::internal(format!("a kernel cannot join {halves:?} with {lefts:?}")));
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
            JobArg::Value(matches!(lefts, LeftParts::Dictionary(_)).into()),
            target,
            JobArg::Value(width as u64),
            JobArg::Cells(cell, 1),
        ];
        let lefts = dictionary.iter().map(|left| JobArg::Value((*left).into()));
        self.push(&JOIN, long_blocks(bytes), args.into_iter().chain(lefts))?;
        Ok(cell)
    }
}
