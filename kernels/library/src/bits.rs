//! Reads bitmaps that begin at any bit, least significant bit first.

/// Whether bit `i` is set. All bits of a bitmap without bytes are set.
#[inline]
pub(crate) fn is_set(bits: &[u8], i: usize) -> bool {
    bits.is_empty() || bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1)
}

/// Counts the set bits among bits `first..first + len`. Bits beyond the end of the bytes count as
/// 0.
pub(crate) fn count_ones(bits: &[u8], first: usize, len: usize) -> u64 {
    let end = (first + len).min(bits.len() * 8);
    if first >= end {
        return 0;
    }
    let (head, tail) = (first / 8, end.div_ceil(8));
    let bytes = bits.get(head..tail).unwrap_or(&[]);
    let mut ones: u64 = 0;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        ones += u64::from(<[u8; 8]>::try_from(word).map_or(0, u64::from_ne_bytes).count_ones());
    }
    ones += rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    let before = bytes.first().map_or(0, |byte| byte & low_bits(first % 8));
    let after = match end % 8 {
        0 => 0,
        used => bytes.last().map_or(0, |byte| byte & !low_bits(used)),
    };
    ones - u64::from(before.count_ones()) - u64::from(after.count_ones())
}

/// A mask of the lowest `n` (below 8) bits.
pub(crate) fn low_bits(n: usize) -> u8 {
    (1u8 << n) - 1
}

/// Returns bits `shift + 8 * i` to `shift + 8 * i + 7`; `shift` is less than 8. Bits beyond the end
/// of the bytes are 0.
pub(crate) fn byte(bits: &[u8], shift: usize, i: usize) -> u8 {
    let low = bits.get(i).copied().unwrap_or(0);
    let high = bits.get(i + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([low, high]) >> shift) as u8
}

/// Clears the bits from bit `len` on.
pub(crate) fn clear_after(to: &mut [u8], len: usize) {
    let whole = to.len().min(len / 8);
    for (i, byte) in to.iter_mut().enumerate().skip(whole) {
        *byte &= if i == len / 8 { low_bits(len % 8) } else { 0 };
    }
}
