//! Decodes the hybrid of run lengths and bit-packed integers of Parquet files.

use std::ops::Range;

use crossdock_memory::{Buffer, BufferMut, Error, Result};

use crate::Checks;
use crate::jobs::{JobArg, warps};
use crate::rows::DECODE_HYBRID;

/// Number of rows that a warp decodes at a time, as in `hybrid.cu`. [`Hybrid::ranks`] has a number
/// for each of these pieces.
pub const HYBRID_PIECE_ROWS: usize = 1024;

/// Runs of values in a buffer.
#[derive(Clone, Debug)]
pub struct Hybrid<'a> {
    /// The buffer of all ranges of bytes.
    pub buffer: &'a Buffer,
    /// The bytes to which the positions of runs refer.
    pub bytes: Range<usize>,
    /// The runs ([`HybridRun::word`]), 8 bytes each.
    pub runs: Range<usize>,
    /// For each run, the number of values up to its end, 4 bytes each.
    pub ends: Range<usize>,
    /// The validity of the rows, from bit 0 on. Only valid rows have values.
    pub validity: Option<&'a Buffer>,
    /// The number of valid rows before each piece, 4 bytes each. Empty without validity.
    pub ranks: Range<usize>,
    /// The values of codes; empty if codes are the values.
    pub dictionary: Range<usize>,
    /// The number of codes.
    pub limit: u64,
}

/// A run of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridRun {
    /// The index of the first value among the values of all runs.
    pub first: u64,
    /// Whether the values are not codes.
    pub is_plain: bool,
    /// The bits of each value, at most 64. With 0 bits, all values are equal.
    pub bits: u32,
    /// The bit at which the first value begins. With 0 bits, the value.
    pub at: u64,
}

impl HybridRun {
    /// The run as the kernel reads it. `None` if a number is too large.
    pub fn word(&self) -> Option<u64> {
        let before = self.first.checked_mul(u64::from(self.bits))?;
        let at = i64::try_from(self.at).ok()?.checked_sub(i64::try_from(before).ok()?)?;
        let is_in_range = self.bits <= 64 && at << 8 >> 8 == at;
        is_in_range
            .then_some((at << 8).cast_unsigned() | u64::from(self.bits) << 1 | u64::from(self.is_plain))
    }
}

impl<'a> Checks<'a> {
    /// Decodes `len` rows of `width` bytes (1, 2, 4 or 8) to byte `at` of `to`. Plain values and
    /// codes that have more bytes are truncated; values of a dictionary have `width` bytes. Rows
    /// that are not valid become 0. The returned cell has the first row that has no value, or whose
    /// code is not less than the number of codes. Such a row also becomes 0.
    pub fn decode_hybrid(
        &mut self,
        from: Hybrid<'a>,
        to: &mut BufferMut,
        at: usize,
        len: usize,
        width: usize,
    ) -> Result<usize> {
        if ![1, 2, 4, 8].contains(&width) {
            return Err(Error::internal(format!("a kernel cannot decode values of {width} bytes")));
        }
        let part = |range: &Range<usize>| match range.len() {
            0 => JobArg::NoBytes,
            bytes => JobArg::Read(from.buffer, range.start, bytes),
        };
        let validity = from.validity.map_or(JobArg::NoBytes, |bits| JobArg::Read(bits, 0, len.div_ceil(8)));
        let bytes = len.saturating_mul(width);
        let cell = self.cells(1);
        let args = [
            part(&from.bytes),
            part(&from.runs),
            part(&from.ends),
            validity,
            part(&from.ranks),
            part(&from.dictionary),
            JobArg::Value(from.limit),
            JobArg::write(to, at, bytes)?,
            JobArg::Value(width as u64),
            JobArg::Cells(cell, 1),
        ];
        self.push(&DECODE_HYBRID, warps(len.div_ceil(HYBRID_PIECE_ROWS), 48), args)?;
        Ok(cell)
    }
}
