//! Kernel arguments for ranges of bitmaps, which may begin at any bit, least significant bit first.

use crossdock_memory::Buffer;

use crate::jobs::JobArg;

/// Returns the first byte and the number of bytes that contain bits `first..first + len`, and the
/// position of the first bit in the first byte.
pub(crate) fn span(first: usize, len: usize) -> (usize, usize, usize) {
    let at = first / 8;
    let shift = first % 8;
    (at, (shift + len).div_ceil(8), shift)
}

/// Passes a range of a bitmap as two arguments: the bytes that contain the range, and the position
/// of the range's first bit in these bytes.
pub(crate) fn args(bits: &Buffer, first: usize, len: usize) -> [JobArg<'_>; 2] {
    let (offset, bytes, shift) = span(first, len);
    [JobArg::Read(bits, offset, bytes), JobArg::Value(shift as u64)]
}

/// An optional bitmap as two arguments. Without a bitmap, the bytes are an empty range of `any`.
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

/// Like [`optional_args`], without a buffer whose empty range stands for the missing bitmap.
pub(crate) fn args_or_none<'a>(bits: Option<(&'a Buffer, usize)>, len: usize) -> [JobArg<'a>; 2] {
    match bits {
        Some((bits, first)) => args(bits, first, len),
        None => [JobArg::NoBytes, JobArg::Value(0)],
    }
}
