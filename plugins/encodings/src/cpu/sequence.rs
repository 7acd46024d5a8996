//! Computes arithmetic sequences of integers.

use super::wide::{self, Work};
use super::words::Word;

/// Number of values that are computed at a time.
const LANES: usize = 16;

/// Writes `base + i * multiplier` for each `i`. Sums and products wrap. Signed values are passed as
/// their bits. The caller checks that all values fit their type.
pub fn fill<T: Word>(base: T, multiplier: T, out: &mut [T]) {
    let rises = std::array::from_fn(|lane| multiplier.times(T::low(lane as u64)));
    wide::run(Rise { base, rises, step: multiplier.times(T::low(LANES as u64)) }, &[], out);
}

struct Rise<T> {
    base: T,
    rises: [T; LANES],
    step: T,
}

impl<T: Word> Work<(), T> for Rise<T> {
    #[inline(always)]
    fn run(self, _: &[()], out: &mut [T]) {
        let Rise { mut base, rises, step } = self;
        let (chunks, rest) = out.as_chunks_mut::<LANES>();
        for chunk in chunks {
            // The loop body is written out, because the compiler might not inline a closure.
            for lane in 0..LANES {
                chunk[lane] = base.plus(rises[lane]);
            }
            base = base.plus(step);
        }
        for (out, rise) in rest.iter_mut().zip(rises) {
            *out = base.plus(rise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn value_is_base_plus_index_times_multiplier(base: u64, multiplier: u64, len in 0usize..100) {
            let mut out = vec![0u64; len];
            fill(base, multiplier, &mut out);
            for (i, value) in (0..).zip(&out) {
                prop_assert_eq!(*value, base.wrapping_add(multiplier.wrapping_mul(i)));
            }
            let mut out = vec![0u8; len];
            fill(base as u8, multiplier as u8, &mut out);
            for (i, value) in (0..).zip(&out) {
                prop_assert_eq!(*value, (base as u8).wrapping_add((multiplier as u8).wrapping_mul(i)));
            }
        }
    }

    #[test]
    fn signed_sequences_wrap_around() {
        let mut out = [0u16; 20];
        fill(5i16.cast_unsigned(), (-3i16).cast_unsigned(), &mut out);
        assert_eq!(out.map(u16::cast_signed)[..4], [5, 2, -1, -4]);
        assert_eq!(out[19].cast_signed(), 5 - 57);
    }
}
