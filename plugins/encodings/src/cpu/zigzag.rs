//! Decodes zigzag: 0, -1, 1, -2, 2 are stored as 0, 1, 2, 3, 4.

use super::words::Word;

/// Returns the bits of the signed integer.
#[inline(always)]
pub fn decode<T: Word>(value: T) -> T {
    value >> 1 ^ T::default().minus(value & T::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_every_byte() {
        for i in i8::MIN..=i8::MAX {
            let encoded = (i << 1 ^ i >> 7) as u8;
            assert_eq!(decode(encoded) as i8, i);
        }
    }

    #[test]
    fn decodes_smallest_and_largest_values_of_u64() {
        let values = [0, 1, 2, u64::MAX - 1, u64::MAX].map(decode);
        assert_eq!(values.map(|v| v as i64), [0, -1, 1, i64::MAX, i64::MIN]);
    }
}
