//! Bitmaps on the host.

/// A growable bitmap.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    /// Returns the bytes. Bits after the last one are 0.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends bits `start..start + len` of `from`. Bits beyond the end of `from` are read as 0.
    pub fn extend(&mut self, from: &[u8], start: usize, len: usize) {
        let byte = |i: usize| from.get(i).copied().unwrap_or(0);
        let mut at = start;
        let end = start + len;
        while at < end {
            // The copied bits stay within one byte of the source and within one byte of this
            // bitmap.
            let n = (8 - at % 8).min(8 - self.len % 8).min(end - at);
            let mask = ((1u16 << n) - 1) as u8;
            self.push((byte(at / 8) >> (at % 8)) & mask, n);
            at += n;
        }
    }

    /// Appends `len` set bits.
    pub fn extend_set(&mut self, len: usize) {
        let mut remaining = len;
        while remaining > 0 {
            let n = (8 - self.len % 8).min(remaining);
            self.push(((1u16 << n) - 1) as u8, n);
            remaining -= n;
        }
    }

    /// Appends the low `n` bits of `bits`. They must fit into the free bits of the last byte.
    fn push(&mut self, bits: u8, n: usize) {
        let shift = self.len % 8;
        match self.bytes.last_mut() {
            Some(last) if shift > 0 => *last |= bits << shift,
            _ => self.bytes.push(bits),
        }
        self.len += n;
    }
}

/// Returns bit `i`, or false beyond the end.
pub fn bit(bytes: &[u8], i: usize) -> bool {
    bytes.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1)
}

/// Copies bits `start..start + len` of `from` into a bitmap that begins at bit 0.
pub fn shifted(from: &[u8], start: usize, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len.div_ceil(8));
    let (first, shift) = (start / 8, start % 8);
    for i in 0..len.div_ceil(8) {
        let low = from.get(first + i).copied().unwrap_or(0);
        let high = from.get(first + i + 1).copied().unwrap_or(0);
        out.push(if shift == 0 { low } else { low >> shift | high << (8 - shift) });
    }
    if !len.is_multiple_of(8)
        && let Some(last) = out.last_mut()
    {
        *last &= ((1u16 << (len % 8)) - 1) as u8;
    }
    out
}

/// Counts the set bits in `start..start + len`.
pub fn count_set(bytes: &[u8], start: usize, len: usize) -> usize {
    shifted(bytes, start, len).iter().map(|byte| byte.count_ones() as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0..40u8).map(|i| i.wrapping_mul(73) ^ 0x5a).collect()
    }

    #[test]
    fn extends_and_counts_bits_from_any_range() {
        let from = sample();
        for start in 0..70 {
            for len in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
                let expected: Vec<bool> = (start..start + len).map(|i| bit(&from, i)).collect();
                let moved = shifted(&from, start, len);
                assert_eq!((0..len).map(|i| bit(&moved, i)).collect::<Vec<_>>(), expected, "{start} {len}");
                assert_eq!(count_set(&from, start, len), expected.iter().filter(|b| **b).count());
                let mut bits = Bits::default();
                bits.extend_set(3);
                bits.extend(&from, start, len);
                let bytes = bits.into_bytes();
                assert_eq!(
                    (0..len).map(|i| bit(&bytes, i + 3)).collect::<Vec<_>>(),
                    expected,
                    "{start} {len}"
                );
                assert!(bit(&bytes, 0) && bit(&bytes, 1) && bit(&bytes, 2));
            }
        }
    }
}
