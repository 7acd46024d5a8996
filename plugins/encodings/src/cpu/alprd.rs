//! Decodes ALP-RD: floats split into a left part (mostly sign and exponent) from a dictionary, and
//! a right part of plain bits.

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::patches;
use super::wide::{self, Work};
use super::words::{Index, Word, check_len};

/// The longest left part, in bits.
const MAX_LEFT_BITS: u32 = 16;

/// The maximum number of left parts, because codes have three bits.
pub const MAX_DICTIONARY: usize = 8;

/// The position of the split and the dictionary of left parts. `T` is the unsigned integer with the
/// width of the float.
#[derive(Clone, Copy, Debug)]
pub struct Cut<T> {
    right_bits: u32,
    // The left parts, shifted to their position. Entries after the end of the dictionary are 0.
    lefts: [T; MAX_DICTIONARY],
    n_lefts: usize,
}

impl<T: Word> Cut<T> {
    /// Rejects right parts that leave no bits or more than 16 bits for the left part. Also rejects
    /// a dictionary with too many left parts, or with a left part that has too many bits.
    pub fn new(right_bits: u32, dictionary: &[u16]) -> Result<Self> {
        let (min, max) = (T::BITS.saturating_sub(MAX_LEFT_BITS), T::BITS - 1);
        if right_bits < min || right_bits > max {
            return Err(Error::bad_data(format!(
                "ALP-RD: expected right parts of {min} to {max} bits, got {right_bits}"
            )));
        }
        if dictionary.len() > MAX_DICTIONARY {
            return Err(Error::bad_data(format!(
                "ALP-RD: expected at most {MAX_DICTIONARY} left parts, got {}",
                dictionary.len()
            )));
        }
        let mut cut = Self { right_bits, lefts: [T::default(); MAX_DICTIONARY], n_lefts: dictionary.len() };
        for (to, left) in cut.lefts.iter_mut().zip(dictionary) {
            *to = shift_left_part(right_bits, *left)?;
        }
        Ok(cut)
    }

    /// Adds the left parts of `codes` to the right parts in `out`. Codes of nulls are ignored.
    pub fn join(&self, codes: &[u16], valid: Option<Bits<'_>>, out: &mut [T]) -> Result<()> {
        check_len("ALP-RD: codes of left parts", out.len(), codes.len())?;
        if let Some(valid) = valid {
            valid.expect_len("ALP-RD: validity bits", out.len())?;
        }
        let greatest = codes.iter().fold(0, |greatest, code| (*code).max(greatest));
        if greatest.index() >= self.n_lefts && !codes.is_empty() {
            let wrong = |i: &usize| codes[*i].index() >= self.n_lefts && valid.is_none_or(|v| v.get(*i));
            if let Some(i) = (0..codes.len()).find(wrong) {
                return Err(Error::bad_data(format!(
                    "ALP-RD: expected codes below {}, got {} at index {i}",
                    self.n_lefts, codes[i]
                )));
            }
        }
        wide::run(*self, codes, out);
        Ok(())
    }

    /// Writes the left parts that are not in the dictionary. The caller must call
    /// [`join`](Self::join) before.
    pub fn patch<I: Index>(&self, indices: &[I], offset: usize, lefts: &[u16], out: &mut [T]) -> Result<()> {
        check_len("ALP-RD: patched left parts, one per index", indices.len(), lefts.len())?;
        for left in lefts {
            shift_left_part::<T>(self.right_bits, *left)?;
        }
        let right = T::mask(self.right_bits);
        patches::for_each_patch(indices, offset, out.len(), |at, number| {
            out[at] = T::low(lefts[number].into()) << self.right_bits | out[at] & right;
        })
    }
}

/// A left part, shifted to its position.
fn shift_left_part<T: Word>(right_bits: u32, left: u16) -> Result<T> {
    let bits = T::BITS - right_bits;
    if u64::from(left) > u64::mask(bits) {
        return Err(Error::bad_data(format!("ALP-RD: left part {left} does not fit into {bits} bits")));
    }
    Ok(T::low(left.into()) << right_bits)
}

impl<T: Word> Work<u16, T> for Cut<T> {
    #[inline(always)]
    fn run(self, codes: &[u16], out: &mut [T]) {
        let right = T::mask(self.right_bits);
        for (out, code) in out.iter_mut().zip(codes) {
            *out = self.lefts[usize::from(*code) % MAX_DICTIONARY] | *out & right;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joins_left_and_right_parts_of_floats(
            floats in proptest::collection::vec(any::<f64>(), 1..60), right_bits in 48u32..64, n_lefts in 1usize..=8
        ) {
            let (words, right) = (floats.iter().map(|f| f.to_bits()), u64::mask(right_bits));
            let mut dictionary: Vec<u16> = words.clone().map(|w| (w >> right_bits) as u16).collect();
            dictionary.sort_unstable();
            dictionary.dedup();
            dictionary.truncate(n_lefts);
            let find = |w: u64| dictionary.iter().position(|left| u64::from(*left) == w >> right_bits);
            let codes: Vec<u16> = words.clone().map(|w| find(w).unwrap_or(0) as u16).collect();
            let (indices, lefts): (Vec<u32>, Vec<u16>) = (0..)
                .zip(words.clone())
                .filter(|(_, w)| find(*w).is_none())
                .map(|(i, w)| (i + 5, (w >> right_bits) as u16))
                .unzip();
            // Bits of the stored right part above its declared width are ignored.
            let mut out: Vec<u64> = words.clone().map(|w| w | !right).collect();
            let cut = Cut::new(right_bits, &dictionary).unwrap();
            cut.join(&codes, None, &mut out).unwrap();
            cut.patch(&indices, 5, &lefts, &mut out).unwrap();
            prop_assert_eq!(out, words.collect::<Vec<_>>());
        }
    }

    #[test]
    fn rejects_codes_beyond_the_dictionary_unless_null() {
        let cut = Cut::<u32>::new(20, &[0xabc, 0x123]).unwrap();
        let mut out = [7u32, 8, 9];
        let e = cut.join(&[0, 2, 1], None, &mut out).unwrap_err();
        assert_eq!(e.message(), "ALP-RD: expected codes below 2, got 2 at index 1");
        cut.join(&[0, 0xffff, 1], Some(Bits::new(&[0b101], 0, 3).unwrap()), &mut out).unwrap();
        assert_eq!([out[0], out[2]], [0xabc0_0007, 0x1230_0009]);
        assert!(Cut::<u32>::new(20, &[]).unwrap().join(&[0], None, &mut [0]).is_err());
        assert!(Cut::<u32>::new(20, &[]).unwrap().join(&[], None, &mut []).is_ok());
    }

    #[test]
    fn rejects_invalid_widths_and_dictionaries() {
        let error = |right_bits, dictionary: &[u16]| {
            Cut::<u64>::new(right_bits, dictionary).unwrap_err().message().to_owned()
        };
        assert_eq!(error(47, &[]), "ALP-RD: expected right parts of 48 to 63 bits, got 47");
        assert_eq!(error(64, &[]), "ALP-RD: expected right parts of 48 to 63 bits, got 64");
        assert_eq!(error(48, &[0; 9]), "ALP-RD: expected at most 8 left parts, got 9");
        assert_eq!(error(60, &[15, 16]), "ALP-RD: left part 16 does not fit into 4 bits");
        assert!(Cut::<u32>::new(15, &[]).is_err() && Cut::<u32>::new(u32::MAX, &[]).is_err());
    }

    #[test]
    fn rejects_invalid_patches_and_lengths() {
        let cut = Cut::<u32>::new(28, &[1]).unwrap();
        let mut out = [0u32; 4];
        let e = cut.patch(&[1u8], 0, &[16], &mut out).unwrap_err();
        assert_eq!(e.message(), "ALP-RD: left part 16 does not fit into 4 bits");
        assert!(
            cut.patch(&[4u8], 0, &[1], &mut out).is_err() && cut.patch(&[1u8], 0, &[], &mut out).is_err()
        );
        assert!(cut.join(&[0; 3], None, &mut out).is_err());
        assert!(cut.join(&[0; 4], Some(Bits::new(&[0], 0, 3).unwrap()), &mut out).is_err());
        assert_eq!(out, [0; 4]);
    }
}
