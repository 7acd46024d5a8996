//! Truth values of a byte each.

use crossdock_plugin_api::Result;

use super::bits;

/// Packs them into a bitmap: every byte but 0 is true.
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
    // Byte `i` moves its one bit to bit 56 + i.
    const TO_THE_TOP: u64 = 0x0102_0408_1020_4080;
    let x = u64::from_le_bytes(bytes);
    let truths = (((x & LOW) + LOW) | x) >> 7 & (!LOW >> 7);
    truths.wrapping_mul(TO_THE_TOP) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_but_zero_is_true(bytes in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)) {
            let mut out = vec![0xff; bits::bytes_of(bytes.len())];
            pack(&bytes, &mut out).unwrap();
            let bits = bits::Bits::new(&out, 0, bytes.len()).unwrap();
            for (i, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(bits.get(i), *byte != 0);
            }
        }
    }

    #[test]
    fn each_of_all_bytes_is_told_from_zero() {
        for byte in 1..=255 {
            let mut out = [0; 2];
            pack(&[0, byte, 0, 0, 0, 0, 0, byte, 0, byte], &mut out).unwrap();
            assert_eq!(out, [0b1000_0010, 0b10]);
        }
    }

    #[test]
    fn outputs_of_another_length_are_refused() {
        assert!(pack(&[1; 9], &mut [0]).is_err() && pack(&[1; 9], &mut [0; 3]).is_err());
    }
}
