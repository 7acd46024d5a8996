//! Reads and writes bitmaps, least significant bit first.

use crossdock_plugin_api::{Error, Result};

use super::words::check_len;

/// A range of bits of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    shift: u32,
    len: usize,
}

/// Size in bytes of a bitmap of `len` bits.
pub fn bitmap_bytes(len: usize) -> usize {
    len.div_ceil(8)
}

/// The `n` lowest bits.
#[inline]
fn lowest(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

impl<'a> Bits<'a> {
    /// Bits `offset..offset + len` of `bytes`.
    pub fn new(bytes: &'a [u8], offset: usize, len: usize) -> Result<Self> {
        match offset.checked_add(len) {
            Some(end) if bitmap_bytes(end) <= bytes.len() => {
                Ok(Self { bytes: &bytes[offset / 8..bitmap_bytes(end)], shift: (offset % 8) as u32, len })
            }
            _ => Err(Error::bad_data(format!(
                "bits: expected bytes for {len} bits from bit {offset} on, got {} bytes",
                bytes.len()
            ))),
        }
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// One bit; false beyond the range.
    #[inline]
    pub fn get(&self, i: usize) -> bool {
        let at = i + self.shift as usize;
        i < self.len && self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    /// Bits `64 * i..64 * i + 64`; 0 beyond the range.
    #[inline]
    pub fn word(&self, i: usize) -> u64 {
        let rest = self.len.saturating_sub(i.saturating_mul(64));
        if rest == 0 {
            return 0;
        }
        let bytes = &self.bytes[i * 8..];
        if let Some((low, [high, ..])) = bytes.split_first_chunk::<8>() {
            let low = u64::from_le_bytes(*low);
            // Two shifts, because a shift by 64 bits is not allowed.
            return (low >> self.shift | u64::from(*high) << 1 << (63 - self.shift)) & lowest(rest);
        }
        let mut last = [0; 8];
        last[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(last) >> self.shift & lowest(rest)
    }

    /// Bits `from..from + len` of this range.
    pub fn slice(&self, from: usize, len: usize) -> Result<Self> {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::bad_data(format!(
                "bits: {len} bits from bit {from} on lie outside a range of {} bits",
                self.len
            )));
        }
        Self::new(self.bytes, self.shift as usize + from, len)
    }

    /// Returns an error unless the range has exactly `len` bits.
    pub(crate) fn expect_len(&self, what: &str, len: usize) -> Result<()> {
        check_len(what, len, self.len)
    }

    /// Copies the bits to a bitmap. The first copied bit becomes bit 0 of the bitmap.
    pub fn copy_to(self, out: &mut [u8]) -> Result<()> {
        write(out, self.len, |i| self.word(i))
    }
}

/// Writes a bitmap of `len` bits from 64-bit words. Unused bits of the last byte become 0.
pub fn write(out: &mut [u8], len: usize, mut word: impl FnMut(usize) -> u64) -> Result<()> {
    check_len("bits: bytes of the output", bitmap_bytes(len), out.len())?;
    let (whole, last) = out.as_chunks_mut::<8>();
    for (i, out) in whole.iter_mut().enumerate() {
        *out = (word(i) & lowest(len - i * 64)).to_le_bytes();
    }
    let i = whole.len();
    if !last.is_empty() {
        let bytes = (word(i) & lowest(len - i * 64)).to_le_bytes();
        last.copy_from_slice(&bytes[..last.len()]);
    }
    Ok(())
}

/// Sets all bits to `value`.
pub fn fill(out: &mut [u8], len: usize, value: bool) -> Result<()> {
    write(out, len, |_| if value { u64::MAX } else { 0 })
}

/// Sets or clears one bit of a bitmap. Ignores a bit beyond its bytes.
#[inline]
pub(crate) fn set(out: &mut [u8], i: usize, value: bool) {
    if let Some(byte) = out.get_mut(i / 8) {
        *byte = *byte & !(1 << (i % 8)) | u8::from(value) << (i % 8);
    }
}

/// Sets bits `from..to` of a bitmap. Bits beyond its end are ignored.
pub(crate) fn set_range(out: &mut [u8], from: usize, to: usize) {
    let to = to.min(out.len() * 8);
    if from >= to {
        return;
    }
    let (first, last) = (from / 8, (to - 1) / 8);
    let (head, tail) = (0xff << (from % 8), 0xff >> (7 - (to - 1) % 8));
    if first == last {
        out[first] |= head & tail;
    } else {
        out[first] |= head;
        out[first + 1..last].fill(0xff);
        out[last] |= tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bools(bytes: &[u8], offset: usize, len: usize) -> Vec<bool> {
        (offset..offset + len).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect()
    }

    proptest! {
        #[test]
        fn reads_bits_at_any_offset(
            bytes in proptest::collection::vec(any::<u8>(), 1..80), cut in any::<(u16, u16)>()
        ) {
            let offset = usize::from(cut.0) % (bytes.len() * 8);
            let len = usize::from(cut.1) % (bytes.len() * 8 - offset + 1);
            let (bits, model) = (Bits::new(&bytes, offset, len).unwrap(), bools(&bytes, offset, len));
            prop_assert_eq!((0..len).map(|i| bits.get(i)).collect::<Vec<_>>(), &model[..]);
            let mut out = vec![0xa5; bitmap_bytes(len)];
            bits.copy_to(&mut out).unwrap();
            prop_assert_eq!(bools(&out, 0, len), &model[..]);
            prop_assert!(bools(&out, len, out.len() * 8 - len).iter().all(|b| !b), "bits beyond the end are 0");
            let from = len / 3;
            let part = bits.slice(from, len - from).unwrap();
            prop_assert_eq!((0..part.len()).map(|i| part.get(i)).collect::<Vec<_>>(), &model[from..]);
        }

        #[test]
        fn set_range_sets_only_its_range(from in 0usize..90, to in 0usize..90) {
            let mut out = vec![0; 10];
            set_range(&mut out, from, to);
            prop_assert_eq!(bools(&out, 0, 80), (0..80).map(|i| i >= from && i < to).collect::<Vec<_>>());
        }
    }

    #[test]
    fn set_ignores_bits_beyond_the_bytes() {
        let mut out = [0u8; 2];
        set(&mut out, 9, true);
        set(&mut out, 16, true);
        assert_eq!(out, [0, 2]);
        set(&mut out, 9, false);
        assert_eq!(out, [0, 0]);
    }

    #[test]
    fn rejects_ranges_beyond_the_bytes() {
        for (offset, len) in [(0, 17), (1, 16), (17, 0), (usize::MAX, 1), (1, usize::MAX)] {
            let e = Bits::new(&[0; 2], offset, len).unwrap_err();
            let expected = format!("bits: expected bytes for {len} bits from bit {offset} on, got 2 bytes");
            assert_eq!(e.message(), expected);
        }
        let bits = Bits::new(&[0; 2], 3, 13).unwrap();
        assert!(
            bits.slice(1, 13).is_err() && bits.slice(usize::MAX, 1).is_err() && bits.slice(13, 0).is_ok()
        );
        assert!(Bits::new(&[0; 2], 0, 5).unwrap().slice(1, 5).is_err(), "the bytes hold more than the range");
        assert!(!bits.get(usize::MAX - 8) && bits.word(usize::MAX) == 0);
    }

    #[test]
    fn rejects_wrong_output_length() {
        let e = fill(&mut [0; 3], 16, true).unwrap_err();
        assert_eq!(e.message(), "bits: bytes of the output: expected 2, got 3");
    }
}
