//! Packs bools that have one byte each into bitmaps.

use crossdock_plugin_api::Result;

use super::bits;

/// Packs bytes to a bitmap. Every byte except 0 is true.
pub fn pack(bytes: &[u8], out: &mut [u8]) -> Result<()> {
    bits::write(out, bytes.len(), |i| {
        let bytes = &bytes[i * 64..bytes.len().min(i * 64 + 64)];
        let (eights, rest) = bytes.as_chunks::<8>();
        let last = {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            eight(last) << (eights.len() * 8 % 64)
        };
        eights.iter().enumerate().fold(last, |word, (at, bytes)| word | eight(*bytes) << (at * 8))
    })
}

/// The bits of eight bytes.
#[inline]
fn eight(bytes: [u8; 8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The product has the bit of byte `i` at bit 56 + i.
    const TO_TOP_BYTE: u64 = 0x0102_0408_1020_4080;
    let x = u64::from_le_bytes(bytes);
    let bools = (((x & LOW) + LOW) | x) >> 7 & (!LOW >> 7);
    bools.wrapping_mul(TO_TOP_BYTE) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_but_zero_is_true(bytes in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)) {
            let mut out = vec![0xff; bits::bitmap_bytes(bytes.len())];
            pack(&bytes, &mut out).unwrap();
            let bits = bits::Bits::new(&out, 0, bytes.len()).unwrap();
            for (i, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(bits.get(i), *byte != 0);
            }
        }
    }

    #[test]
    fn every_nonzero_byte_sets_its_bit() {
        for byte in 1..=255 {
            let mut out = [0; 2];
            pack(&[0, byte, 0, 0, 0, 0, 0, byte, 0, byte], &mut out).unwrap();
            assert_eq!(out, [0b1000_0010, 0b10]);
        }
    }

    #[test]
    fn rejects_wrong_output_length() {
        assert!(pack(&[1; 9], &mut [0]).is_err() && pack(&[1; 9], &mut [0; 3]).is_err());
    }
}
