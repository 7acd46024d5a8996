//! Decodes the hybrid of run lengths and bit-packed integers of Parquet files.

use crate::bits;
use crate::door::Args;

/// The number of rows for which `ranks` has a number.
const PIECE_ROWS: usize = 1024;

struct Hybrid<'a> {
    bytes: &'a [u8],
    runs: &'a [[u8; 8]],
    ends: &'a [[u8; 4]],
    dictionary: &'a [u8],
    limit: u64,
}

pub(crate) fn decode(args: Args<'_>) -> Option<()> {
    let from = Hybrid {
        bytes: args.read(0)?,
        runs: args.read(1)?.as_chunks().0,
        ends: args.read(2)?.as_chunks().0,
        dictionary: args.read(5)?,
        limit: args.value(6)?,
    };
    let (validity, ranks) = (args.read(3)?, args.read(4)?.as_chunks::<4>().0);
    let (to, width) = (args.write(7)?, args.index(8)?);
    let first_wrong = match width {
        1 => rows::<1>(from, validity, ranks, to),
        2 => rows::<2>(from, validity, ranks, to),
        4 => rows::<4>(from, validity, ranks, to),
        8 => rows::<8>(from, validity, ranks, to),
        _ => return None,
    };
    args.report_wrong(9, first_wrong)
}

/// Decodes all rows. Returns the first wrong row.
fn rows<const N: usize>(
    mut from: Hybrid<'_>,
    validity: &[u8],
    ranks: &[[u8; 4]],
    to: &mut [u8],
) -> Option<usize> {
    if !from.dictionary.is_empty() {
        from.limit = from.limit.min((from.dictionary.len() / N) as u64);
    }
    let mut first_wrong = None;
    for (piece, to) in to.as_chunks_mut::<N>().0.chunks_mut(PIECE_ROWS).enumerate() {
        let begin = piece * PIECE_ROWS;
        let rank = |rank: &[u8; 4]| u64::from(u32::from_ne_bytes(*rank));
        let mut i = if validity.is_empty() { begin as u64 } else { ranks.get(piece).map_or(0, rank) };
        let mut run = from.ends.partition_point(|end| u64::from(u32::from_ne_bytes(*end)) <= i);
        for (row, to) in to.iter_mut().enumerate() {
            *to = [0; N];
            if !bits::is_set(validity, begin + row) {
                continue;
            }
            while from.ends.get(run).is_some_and(|end| u64::from(u32::from_ne_bytes(*end)) <= i) {
                run += 1;
            }
            match from.value::<N>(run, i) {
                Some(value) => *to = value,
                None => first_wrong = first_wrong.or(Some(begin + row)),
            }
            i += 1;
        }
    }
    first_wrong
}

impl Hybrid<'_> {
    /// Value `i` of a run.
    fn value<const N: usize>(&self, run: usize, i: u64) -> Option<[u8; N]> {
        self.ends.get(run)?;
        let word = u64::from_ne_bytes(*self.runs.get(run)?);
        let bits = word >> 1 & 127;
        let at = (word.cast_signed() >> 8).cast_unsigned();
        let value = match bits {
            0 => at,
            _ => self.bits(at.wrapping_add(i.wrapping_mul(bits)), bits),
        };
        if word & 1 == 0 {
            if value >= self.limit {
                return None;
            }
            if !self.dictionary.is_empty() {
                return self.dictionary.as_chunks::<N>().0.get(usize::try_from(value).ok()?).copied();
            }
        }
        value.to_ne_bytes().first_chunk::<N>().copied()
    }

    /// `n` bits from bit `bit` on. Bits outside of the bytes are 0.
    fn bits(&self, bit: u64, n: u64) -> u64 {
        let mut bytes = [0; 16];
        let from = usize::try_from(bit / 8).ok().and_then(|at| self.bytes.get(at..)).unwrap_or(&[]);
        for (to, from) in bytes.iter_mut().zip(from.iter().take(9)) {
            *to = *from;
        }
        let word = (u128::from_le_bytes(bytes) >> (bit % 8)) as u64;
        if n >= 64 { word } else { word & ((1 << n) - 1) }
    }
}
