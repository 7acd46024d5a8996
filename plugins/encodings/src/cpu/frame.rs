//! Frame of reference: integers as what they are above one of them.

use super::words::Word;

/// Adds the reference to each, modulo the width. A signed reference is given as its bits.
pub fn decode_all<T: Word>(values: &mut [T], reference: T) {
    values.iter_mut().for_each(|value| *value = value.plus(reference));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_wrap_in_the_width_of_the_type() {
        let mut values = [0u8, 1, 200];
        decode_all(&mut values, -100i8 as u8);
        assert_eq!(values.map(|v| v as i8), [-100, -99, 100]);
    }
}
