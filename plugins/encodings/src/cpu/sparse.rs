//! Decodes a fill value with patches.

use crossdock_plugin_api::Result;

use super::bits::{self, Bits};
use super::patches;
use super::words::Index;

/// Fills `out` with `fill`, then writes the patches.
pub fn decode<I: Index, V: Copy>(
    fill: V,
    indices: &[I],
    offset: usize,
    values: &[V],
    out: &mut [V],
) -> Result<()> {
    out.fill(fill);
    patches::apply(indices, offset, values, out, |value| value)
}

/// [`decode`] for bools and validity bits; `len` is the number of bits in `out`.
pub fn decode_bits<I: Index>(
    fill: bool,
    indices: &[I],
    offset: usize,
    values: Bits<'_>,
    out: &mut [u8],
    len: usize,
) -> Result<()> {
    bits::fill(out, len, fill)?;
    patches::apply_bits(indices, offset, values, out, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_replace_the_fill_value() {
        let mut out = [0u64; 5];
        decode(4, &[11u8, 14], 10, &[1, 2], &mut out).unwrap();
        assert_eq!(out, [4, 1, 4, 4, 2]);
        let mut set = [0; 1];
        decode_bits(true, &[11u8, 14], 10, Bits::new(&[0b10], 0, 2).unwrap(), &mut set, 5).unwrap();
        assert_eq!(set, [0b1_1101]);
    }

    #[test]
    fn rejects_patches_out_of_range() {
        assert!(decode(4, &[5u8], 0, &[1], &mut [0u8; 5]).is_err());
        assert!(decode_bits(true, &[5u8], 0, Bits::new(&[1], 0, 1).unwrap(), &mut [0], 5).is_err());
        assert!(decode_bits(true, &[4u8], 0, Bits::new(&[1], 0, 1).unwrap(), &mut [], 5).is_err());
    }
}
