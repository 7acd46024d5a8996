//! Finds the runs of Parquet's hybrid of run lengths and bit-packed integers ("RLE/Bit-Packing
//! Hybrid" in the section Encodings of the specification).

use std::ops::Range;

use arrow_buffer::BooleanBufferBuilder;
use crossdock_plugin_api::{Error, Result};

/// A run of integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// The same integer.
    Repeated(u64),
    /// Bit-packed integers in these bytes.
    Packed(Range<usize>),
}

/// Calls `use_run` with each run of `n` integers of `bits` bits, and with its number of integers,
/// which is not 0.
///
/// # Errors
/// Bad data if the runs end before; the error of `use_run`.
pub fn for_each_run(
    bytes: &[u8],
    bits: u32,
    n: usize,
    mut use_run: impl FnMut(Run, usize) -> Result<()>,
) -> Result<()> {
    let value_bytes = bits.div_ceil(8) as usize;
    let (mut at, mut done) = (0usize, 0);
    while done < n {
        let short = || Error::bad_data(format!("the runs end after {done} of {n} values"));
        let rest = bytes.get(at..).unwrap_or_default();
        let (header, header_bytes) = varint(rest).ok_or_else(short)?;
        at += header_bytes;
        let rest = bytes.get(at..).unwrap_or_default();
        let count = usize::try_from(header >> 1).unwrap_or(usize::MAX);
        if header & 1 == 1 {
            let declared = count.saturating_mul(8);
            // Writers may leave out the end of the last run, after the last value.
            let run_bytes = count.saturating_mul(bits as usize).min(rest.len());
            let present = (run_bytes * 8).checked_div(bits as usize).unwrap_or(declared);
            let len = declared.min(present).min(n - done);
            if len > 0 {
                use_run(Run::Packed(at..at + run_bytes), len)?;
            }
            (at, done) = (at + run_bytes, done + len);
        } else {
            let value = rest.get(..value_bytes).ok_or_else(short)?;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let len = count.min(n - done);
            if len > 0 {
                use_run(Run::Repeated(value), len)?;
            }
            (at, done) = (at + value_bytes, done + len);
        }
    }
    Ok(())
}

/// An integer of variable length, and its number of bytes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Which rows of a column are valid.
#[derive(Default)]
pub struct Validity {
    n_rows: usize,
    n_valid: usize,
    /// The bitmap. `None` while all rows are valid.
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    /// The number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The number of valid rows.
    pub fn n_valid(&self) -> usize {
        self.n_valid
    }

    /// The bitmap; `None` if all rows are valid.
    pub fn bitmap(&self) -> Option<&[u8]> {
        let bits = self.bits.as_ref().filter(|_| self.n_valid < self.n_rows)?;
        bits.as_slice().get(..self.n_rows.div_ceil(8))
    }

    /// Appends rows without levels, which are valid.
    pub fn push_valid(&mut self, n: usize) {
        if let Some(bits) = &mut self.bits {
            bits.append_n(n, true);
        }
        self.n_rows += n;
        self.n_valid += n;
    }

    /// Appends `n` rows, whose definition levels are 0 for null and 1 for valid. Returns how many
    /// are valid.
    ///
    /// # Errors
    /// Bad data if there are too few levels, or a level is greater than 1.
    pub fn push_levels(&mut self, levels: &[u8], n: usize) -> Result<usize> {
        let before = self.n_valid;
        for_each_run(levels, 1, n, |run, len| {
            match run {
                Run::Repeated(1) => self.push_valid(len),
                Run::Repeated(0) => {
                    self.bitmap_mut().append_n(len, false);
                    self.n_rows += len;
                }
                Run::Repeated(level) => {
                    return Err(Error::bad_data(format!("the definition level {level}, expected 0 or 1")));
                }
                Run::Packed(range) => {
                    let packed = levels.get(range).unwrap_or_default();
                    let ones = count_ones(packed, len);
                    if ones == len {
                        self.push_valid(len);
                    } else {
                        self.bitmap_mut().append_packed_range(0..len, packed);
                        self.n_rows += len;
                        self.n_valid += ones;
                    }
                }
            }
            Ok(())
        })
        .map_err(|error| error.context("definition levels"))?;
        Ok(self.n_valid - before)
    }

    fn bitmap_mut(&mut self) -> &mut BooleanBufferBuilder {
        let n_rows = self.n_rows;
        self.bits.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(n_rows);
            bits.append_n(n_rows, true);
            bits
        })
    }
}

/// The number of set bits among the first `n`.
pub fn count_ones(bits: &[u8], n: usize) -> usize {
    let (whole, rest) = bits.split_at_checked(n / 8).unwrap_or((bits, &[]));
    let (words, bytes) = whole.as_chunks::<8>();
    let mut ones: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
    ones += bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let mask = (1u8 << (n % 8)) - 1;
    ones += rest.first().map_or(0, |byte| (byte & mask).count_ones());
    ones as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8], bits: u32, n: usize) -> Result<Vec<(Run, usize)>> {
        let mut runs = Vec::new();
        for_each_run(bytes, bits, n, |run, len| {
            runs.push((run, len));
            Ok(())
        })?;
        Ok(runs)
    }

    #[test]
    fn runs_have_the_lengths_of_the_specification() {
        // 100 times 5, then two groups of eight values of 3 bits, of which 12 values are used.
        let bytes = [200, 1, 5, 5, 1, 2, 3, 4, 5, 6];
        let expected = [(Run::Repeated(5), 100), (Run::Packed(4..10), 12)];
        assert_eq!(runs(&bytes, 3, 112).unwrap(), expected);
        assert_eq!(runs(&bytes, 3, 90).unwrap(), [(Run::Repeated(5), 90)]);
        // The last run ends after its last value.
        let cut = bytes.split_at(7).0;
        assert_eq!(runs(cut, 3, 108).unwrap(), [(Run::Repeated(5), 100), (Run::Packed(4..7), 8)]);
        assert!(runs(cut, 3, 109).unwrap_err().message().contains("after 108 of 109"));
        assert_eq!(runs(&[8, 0x34, 0x12], 13, 4).unwrap(), [(Run::Repeated(0x1234), 4)]);
        assert_eq!(runs(&[3], 0, 8).unwrap(), [(Run::Packed(1..1), 8)], "no bits");
        assert_eq!(runs(&[0, 7, 1, 8, 9], 8, 4).unwrap(), [(Run::Repeated(9), 4)], "empty runs");
    }

    #[test]
    fn damaged_runs_are_errors() {
        for bytes in [&[][..], &[0x80], &[0x80, 0x80, 0x80, 0x80, 0x80, 1], &[8], &[8, 1], &[0, 0, 0]] {
            assert!(runs(bytes, 13, 4).is_err(), "{bytes:?}");
        }
        assert!(runs(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1], 13, 1_000_000).is_err());
    }

    #[test]
    fn levels_become_a_bitmap() {
        let mut validity = Validity::default();
        validity.push_valid(3);
        assert_eq!(validity.push_levels(&[10, 1], 5).unwrap(), 5);
        assert_eq!(validity.bitmap(), None);
        // Eight levels in one byte, of which six are used.
        assert_eq!(validity.push_levels(&[3, 0b1110_1101], 6).unwrap(), 4);
        assert_eq!(validity.push_levels(&[4, 0], 2).unwrap(), 0);
        validity.push_valid(1);
        assert_eq!((validity.n_rows(), validity.n_valid()), (17, 13));
        assert_eq!(validity.bitmap().unwrap(), [0xff, 0b0010_1101, 1]);
        assert!(validity.push_levels(&[4, 2], 2).unwrap_err().message().contains("level 2"));
    }

    #[test]
    fn ones_are_counted_up_to_a_bit() {
        let bytes = [0xff; 20];
        for n in 0..=160 {
            assert_eq!(count_ones(&bytes, n), n);
        }
    }
}
