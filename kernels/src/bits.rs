//! Bitmaps as kernels see them: least significant bit first, from any bit on.

use crossdock_memory::Buffer;

use crate::jobs::JobArg;

/// The bytes that hold bits `first..first + len`, and where the first lies in them.
pub(crate) fn span(first: usize, len: usize) -> (usize, usize, usize) {
    let at = first / 8;
    let shift = first % 8;
    (at, (shift + len).div_ceil(8), shift)
}

/// A range of a bitmap as two arguments: its bytes, and the bit at which it begins in them.
pub(crate) fn args(bits: &Buffer, first: usize, len: usize) -> [JobArg<'_>; 2] {
    let (offset, bytes, shift) = span(first, len);
    [JobArg::Read(bits, offset, bytes), JobArg::Value(shift as u64)]
}

/// An optional bitmap as two arguments: no bytes where there is none. `any` stands in for it.
pub(crate) fn optional_args<'a>(
    bits: Option<(&'a Buffer, usize)>,
    len: usize,
    any: &'a Buffer,
) -> [JobArg<'a>; 2] {
    match bits {
        Some((bits, first)) => args(bits, first, len),
        None => [JobArg::Read(any, 0, 0), JobArg::Value(0)],
    }
}

/// One bit; a bitmap of no bytes has every bit set.
#[inline]
pub(crate) fn is_set(bits: &[u8], i: usize) -> bool {
    bits.is_empty() || bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1)
}

/// How many of bits `first..first + len` are set; those beyond the bytes are not.
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

/// The lowest `n` (below 8) bits.
pub(crate) fn low_bits(n: usize) -> u8 {
    (1u8 << n) - 1
}

/// Bits `8 * i..` of those that begin at bit `shift` (below 8); those beyond the bytes are clear.
pub(crate) fn byte(bits: &[u8], shift: usize, i: usize) -> u8 {
    let low = bits.get(i).copied().unwrap_or(0);
    let high = bits.get(i + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([low, high]) >> shift) as u8
}

/// Clears the bits from bit `len` on.
pub(crate) fn clear_after(to: &mut [u8], len: usize) {
    let kept = to.len().min(len / 8);
    for (i, byte) in to.iter_mut().enumerate().skip(kept) {
        *byte &= if i == len / 8 { low_bits(len % 8) } else { 0 };
    }
}
