//! Looks up codes in dictionaries of values of fixed width.

use crossdock_plugin_api::{Error, Result};

use super::bits::{self, Bits};
use super::fastlanes;
use super::wide::{self, Work};
use super::words::{Index, Word, check_len};

/// Number of codes that are copied and checked at a time.
const BLOCK: usize = 1024;

/// Number of nullable codes that are copied and checked at a time: one for each bit of a word of
/// validity bits.
const WORD: usize = 64;

/// Looks up each code. Rejects a non-null code that is out of range. A null code may have any
/// value. Its result is the dictionary's first value, or `null` if the dictionary is empty.
pub fn take<C: Index, V: Copy>(
    codes: &[C],
    valid: Option<Bits<'_>>,
    values: &[V],
    null: V,
    out: &mut [V],
) -> Result<()> {
    check_len("dictionary: codes", out.len(), codes.len())?;
    if let Some(valid) = valid {
        valid.expect_len("dictionary: validity bits", codes.len())?;
    }
    if values.is_empty() {
        out.fill(null);
    }
    wide::run(LookUp { valid, values, first: 0 }, codes, out)
}

/// Bit-packed codes.
pub struct Packed<'a> {
    /// The packed blocks.
    pub bytes: &'a [u8],
    /// Bits per code.
    pub width: u32,
    /// Index of the first code in its block.
    pub offset: usize,
}

/// Looks up packed, non-null codes like [`take`]. Unpacks only one block of codes at a time.
pub fn take_packed<C: Index + Word, V: Copy>(codes: &Packed<'_>, values: &[V], out: &mut [V]) -> Result<()> {
    let look_up = |first| LookUp { valid: None, values, first };
    fastlanes::unpack_through::<C, V, _>(codes.bytes, codes.width, codes.offset, out, look_up)
}

struct LookUp<'a, V> {
    valid: Option<Bits<'a>>,
    values: &'a [V],
    /// Index of the first code in the array, for errors.
    first: usize,
}

impl<C: Index, V: Copy> Work<C, V, Result<()>> for LookUp<'_, V> {
    #[inline(always)]
    fn run(self, codes: &[C], out: &mut [V]) -> Result<()> {
        let LookUp { valid, values, first } = self;
        let n_values = values.len();
        let chunk = if valid.is_some() { WORD } else { BLOCK };
        // Another thread or device may change the codes concurrently. So the codes are copied, and
        // the copy is both checked and used.
        let mut copied = [C::default(); BLOCK];
        for (i, (codes, out)) in codes.chunks(chunk).zip(out.chunks_mut(chunk)).enumerate() {
            let copied = &mut copied[..codes.len()];
            match valid.map(|valid| valid.word(i)) {
                Some(word) if word.count_ones() as usize != codes.len() => copy_valid(codes, word, copied),
                _ => copied.copy_from_slice(codes),
            }
            // Without black_box the compiler may read the source again instead of the copy, because
            // it assumes that memory behind a shared reference does not change.
            let codes = &*std::hint::black_box(copied);
            if C::greatest(codes) >= n_values {
                let at = |j: usize| i * chunk + j;
                let is_invalid =
                    |j: &usize| codes[*j].index() >= n_values && valid.is_none_or(|valid| valid.get(at(*j)));
                match (0..codes.len()).find(is_invalid) {
                    Some(j) => return Err(unknown(codes[j], first + at(j), n_values)),
                    // The dictionary is empty, and all codes are null.
                    None => continue,
                }
            }
            // Eight values of a greater width do not fit into the registers.
            let in_eights = if size_of::<V>() > size_of::<u64>() { 0 } else { codes.len() / 8 * 8 };
            let (codes, rest) = codes.split_at(in_eights);
            let (out, rest_out) = out.split_at_mut(in_eights);
            for (codes, out) in codes.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0) {
                let [a, b, c, d, e, f, g, h] = *codes;
                // This is not in a closure, because the compiler would not inline a closure that is
                // called in several places.
                // SAFETY: the greatest code of the copy is below `n_values`, the length of
                // `values`.
                *out = unsafe {
                    [
                        value_at(values, a),
                        value_at(values, b),
                        value_at(values, c),
                        value_at(values, d),
                        value_at(values, e),
                        value_at(values, f),
                        value_at(values, g),
                        value_at(values, h),
                    ]
                };
            }
            for (code, out) in rest.iter().zip(rest_out) {
                // SAFETY: the greatest code of the copy is below `n_values`, the length of
                // `values`.
                *out = unsafe { value_at(values, *code) };
            }
        }
        Ok(())
    }
}

/// # Safety
/// `code.index()` is less than the length of `values`.
#[inline(always)]
unsafe fn value_at<C: Index, V: Copy>(values: &[V], code: C) -> V {
    // SAFETY: the caller guarantees that the index is within `values`.
    unsafe { *values.get_unchecked(code.index()) }
}

/// Copies the codes whose bit in `word` is set. All other codes are replaced by 0.
#[inline(always)]
fn copy_valid<C: Index>(codes: &[C], word: u64, to: &mut [C]) {
    let bytes = word.to_le_bytes();
    for ((codes, to), byte) in codes.chunks(8).zip(to.chunks_mut(8)).zip(bytes) {
        for (bit, (code, to)) in codes.iter().zip(to).enumerate() {
            *to = code.keep_if(byte & 1 << bit != 0);
        }
    }
}

/// [`take`] for bools and validity bits. The bits of null codes are 0.
pub fn take_bits<C: Index>(
    codes: &[C],
    valid: Option<Bits<'_>>,
    values: Bits<'_>,
    out: &mut [u8],
) -> Result<()> {
    if let Some(valid) = valid {
        valid.expect_len("dictionary: validity bits", codes.len())?;
    }
    let mut first_invalid = None;
    bits::write(out, codes.len(), |i| {
        let valid = valid.map_or(u64::MAX, |valid| valid.word(i));
        let codes = &codes[i * 64..codes.len().min(i * 64 + 64)];
        codes.iter().enumerate().fold(0, |word, (j, code)| {
            let at = code.index();
            let is_valid = valid >> j & 1;
            if is_valid == 1 && at >= values.len() {
                first_invalid.get_or_insert(i * 64 + j);
            }
            word | (u64::from(values.get(at)) & is_valid) << j
        })
    })?;
    first_invalid.map_or(Ok(()), |i| Err(unknown(codes[i], i, values.len())))
}

#[cold]
fn unknown<C: Index>(code: C, i: usize, values: usize) -> Error {
    Error::bad_data(format!("dictionary: expected codes below {values}, got {code} at index {i}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_codes_match_plain_codes(
            codes in proptest::collection::vec(0u16..300, 1..3000), n_values in 1usize..300, offset in 0usize..1024
        ) {
            let values: Vec<u64> = (0..n_values as u64).map(|v| v * 3 + 1).collect();
            let offset = offset.min(codes.len() - 1);
            let greatest = codes.iter().max().map_or(0, |code| u16::BITS - code.leading_zeros());
            let bytes = fastlanes::packed(&codes, greatest);
            let (mut expected, mut got) = (vec![0; codes.len() - offset], vec![0; codes.len() - offset]);
            // A slice omits the blocks before the block that contains its first value.
            let (blocks, offset_in) = (offset / 1024 * 128 * greatest as usize, offset % 1024);
            let packed = Packed { bytes: &bytes[blocks..], width: greatest, offset: offset_in };
            let taken = take(&codes[offset..], None, &values, 0, &mut expected);
            let looked_up = take_packed::<u16, u64>(&packed, &values, &mut got);
            prop_assert_eq!(looked_up.map_err(|error| error.message().to_owned()), taken.map_err(|error| error.message().to_owned()));
            if codes[offset..].iter().all(|code| usize::from(*code) < n_values) {
                prop_assert_eq!(got, expected);
            }
        }

        #[test]
        fn looks_up_valid_codes_only(
            rows in proptest::collection::vec((any::<u8>(), any::<bool>()), 0..300), n_values in 1usize..300
        ) {
            let values: Vec<u32> = (0..n_values as u32).map(|v| v * 3 + 1).collect();
            let values_set: Vec<u8> = (0..bits::bitmap_bytes(n_values)).map(|i| (i * 89 + 13) as u8).collect();
            let values_set = Bits::new(&values_set, 0, n_values).unwrap();
            let mut valid = vec![0; bits::bitmap_bytes(rows.len())];
            rows.iter().enumerate().for_each(|(i, row)| bits::set(&mut valid, i, row.1));
            let valid = Bits::new(&valid, 0, rows.len()).unwrap();
            let codes: Vec<i16> = rows.iter().map(|row| i16::from(row.0)).collect();
            let (mut out, mut set) = (vec![9; rows.len()], vec![0; bits::bitmap_bytes(rows.len())]);
            let taken = take(&codes, Some(valid), &values, 7, &mut out);
            let taken_bits = take_bits(&codes, Some(valid), values_set, &mut set);
            if let Some(i) = rows.iter().position(|(code, valid)| *valid && usize::from(*code) >= n_values) {
                let expected = format!("dictionary: expected codes below {n_values}, got {} at index {i}", rows[i].0);
                prop_assert_eq!(taken.unwrap_err().message().to_owned(), expected.clone());
                prop_assert_eq!(taken_bits.unwrap_err().message().to_owned(), expected);
            } else {
                let named = |r: &(u8, bool)| if r.1 { u32::from(r.0) * 3 + 1 } else { 1 };
                let expected: Vec<u32> = rows.iter().map(named).collect();
                prop_assert_eq!(out, expected);
                for (i, row) in rows.iter().enumerate() {
                    let got = set[i / 8] >> (i % 8) & 1 == 1;
                    prop_assert_eq!(got, row.1 && values_set.get(row.0.into()), "row {}", i);
                }
            }
        }
    }

    #[test]
    fn rejects_codes_out_of_range() {
        let mut out = [0u64; 3];
        take(&[2u64, 0, 1], None, &[5, 6, 7], 0, &mut out).unwrap();
        assert_eq!(out, [7, 5, 6]);
        let mut wide = [[0u8; 16]; 3];
        take(&[2u8, 0, 1], None, &[[5; 16], [6; 16], [7; 16]], [0; 16], &mut wide).unwrap();
        assert_eq!(wide, [[7; 16], [5; 16], [6; 16]]);
        let e = take(&[0u64, u64::MAX, 1], None, &[5, 6, 7], 0, &mut out).unwrap_err();
        assert_eq!(e.message(), format!("dictionary: expected codes below 3, got {} at index 1", u64::MAX));
        let e = take(&[0i8, 0, -1], None, &[5, 6, 7], 0, &mut out).unwrap_err();
        assert_eq!(e.message(), "dictionary: expected codes below 3, got -1 at index 2");
        let mut set = [0];
        take_bits(&[1u8, 0, 1], None, Bits::new(&[0b10], 0, 2).unwrap(), &mut set).unwrap();
        assert_eq!(set, [0b101]);
        assert!(take_bits(&[2u8], None, Bits::new(&[0b10], 0, 2).unwrap(), &mut set).is_err());
    }

    #[test]
    fn empty_dictionary_accepts_null_codes_only() {
        let mut out = [1u16; 2];
        take(&[200u8, 3], Some(Bits::new(&[0], 0, 2).unwrap()), &[], 0, &mut out).unwrap();
        assert_eq!(out, [0, 0]);
        assert!(take(&[0u8, 0], None, &[], 0, &mut out).is_err());
    }

    #[test]
    fn rejects_mismatched_lengths() {
        let valid = Bits::new(&[0], 0, 3).unwrap();
        assert!(take(&[0u8; 2], None, &[1], 0, &mut [0; 3]).is_err());
        assert!(take(&[0u8; 2], Some(valid), &[1], 0, &mut [0; 2]).is_err());
        assert!(take_bits(&[0u8; 2], Some(valid), valid, &mut [0]).is_err());
        assert!(take_bits(&[0u8; 2], None, valid, &mut [0, 0]).is_err());
    }
}
