//! Decodes ALP: floats stored as integers times powers of ten.

use crossdock_plugin_api::{Error, Result};

use super::words::Word;

/// A float that ALP encodes.
pub trait Float: Copy + PartialEq + std::fmt::Debug + std::ops::Mul<Output = Self> + 'static {
    /// The unsigned word with the bits of an encoded signed integer.
    type Word: Word;
    /// The powers of ten for the exponents.
    const POWERS: &'static [Self];
    /// The reciprocals of `POWERS`, rounded to the nearest float.
    const INVERSES: &'static [Self];
    /// The float nearest to the signed integer with these bits.
    fn of(bits: Self::Word) -> Self;
}

impl Float for f32 {
    type Word = u32;
    const POWERS: &'static [f32] = &[1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
    const INVERSES: &'static [f32] = &[1e-0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10];
    #[inline(always)]
    fn of(bits: u32) -> f32 {
        bits.cast_signed() as f32
    }
}

impl Float for f64 {
    type Word = u64;
    const POWERS: &'static [f64] = &[
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18,
    ];
    const INVERSES: &'static [f64] = &[
        1e-0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
        1e-16, 1e-17, 1e-18,
    ];
    #[inline(always)]
    fn of(bits: u64) -> f64 {
        // Few vector units convert 64-bit integers. Therefore each 32-bit half is put into the
        // lowest bits of a float with a known exponent. The floats are 2^84 + 2^63 + high * 2^32
        // and 2^52 + low. Subtracting `BOTH` is exact, so only the sum is rounded.
        const HIGH: u64 = 0x4530_0000_8000_0000;
        const LOW: u64 = 0x4330_0000_0000_0000;
        const BOTH: u64 = 0x4530_0000_8010_0000;
        let high = f64::from_bits(bits >> 32 ^ HIGH);
        let low = f64::from_bits(bits & 0xffff_ffff | LOW);
        (high - f64::from_bits(BOTH)) + low
    }
}

/// The factors of an array's integers: 10^f, then 10^-e. The order is part of the format, because
/// both products are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale<F> {
    power: F,
    inverse: F,
}

impl<F: Float> Scale<F> {
    /// Rejects exponents above 10 for `f32` and above 18 for `f64`.
    pub fn new(e: u32, f: u32) -> Result<Self> {
        let factor = |of: &[F], name, exponent: u32| {
            of.get(exponent as usize).copied().ok_or_else(|| {
                Error::bad_data(format!(
                    "ALP: expected an exponent {name} of 0 to {}, got {exponent}",
                    of.len() - 1
                ))
            })
        };
        Ok(Self { power: factor(F::POWERS, "f", f)?, inverse: factor(F::INVERSES, "e", e)? })
    }

    /// The two factors in the order of multiplication.
    pub fn factors(self) -> [F; 2] {
        [self.power, self.inverse]
    }

    /// Converts an encoded integer, given as its bits, to a float. Callers pass this function as
    /// the `step` of [`unpack`](super::fastlanes::unpack).
    #[inline(always)]
    pub fn decode(self, bits: F::Word) -> F {
        F::of(bits) * self.power * self.inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constants_for_powers_of_ten_are_the_nearest_floats() {
        for (i, (power, inverse)) in f64::POWERS.iter().zip(f64::INVERSES).enumerate() {
            assert_eq!(
                (*power, *inverse),
                (format!("1e{i}").parse().unwrap(), format!("1e-{i}").parse().unwrap())
            );
        }
        for (i, (power, inverse)) in f32::POWERS.iter().zip(f32::INVERSES).enumerate() {
            assert_eq!(
                (*power, *inverse),
                (format!("1e{i}").parse().unwrap(), format!("1e-{i}").parse().unwrap())
            );
        }
        assert_eq!((f64::POWERS.len(), f64::INVERSES.len()), (19, 19));
        assert_eq!((f32::POWERS.len(), f32::INVERSES.len()), (11, 11));
    }

    #[test]
    fn decoding_rounds_after_each_multiplication_in_order() {
        let i = 904_269_621_787_359_i64;
        let decoded = Scale::<f64>::new(16, 3).unwrap().decode(i.cast_unsigned());
        assert_eq!(decoded.to_bits(), ((i as f64 * 1e3) * 1e-16).to_bits());
        assert_ne!(decoded.to_bits(), ((i as f64 * 1e-16) * 1e3).to_bits());
        assert_ne!(decoded.to_bits(), (i as f64 * (1e3 * 1e-16)).to_bits());
    }

    proptest! {
        #[test]
        fn decodes_like_scalar_arithmetic(
            ints in proptest::collection::vec(any::<i64>(), 0..40), e in 0u32..=18, f in 0u32..=18
        ) {
            let words: Vec<u64> = ints.iter().map(|i| i.cast_unsigned()).collect();
            let scale = Scale::<f64>::new(e, f).unwrap();
            let out: Vec<f64> = words.iter().map(|bits| scale.decode(*bits)).collect();
            let (power, inverse): (f64, f64) =
                (format!("1e{f}").parse().unwrap(), format!("1e-{e}").parse().unwrap());
            for (i, out) in ints.iter().zip(&out) {
                prop_assert_eq!(out.to_bits(), (*i as f64 * power * inverse).to_bits());
            }
            let (e, f) = (e % 11, f % 11);
            let words: Vec<u32> = ints.iter().map(|i| *i as u32).collect();
            let scale = Scale::<f32>::new(e, f).unwrap();
            let out: Vec<f32> = words.iter().map(|bits| scale.decode(*bits)).collect();
            let (power, inverse): (f32, f32) =
                (format!("1e{f}").parse().unwrap(), format!("1e-{e}").parse().unwrap());
            for (i, out) in ints.iter().zip(&out) {
                prop_assert_eq!(out.to_bits(), (*i as i32 as f32 * power * inverse).to_bits());
            }
        }
    }

    #[test]
    fn converts_integers_to_the_nearest_float() {
        let ends = [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 32, -(1 << 32), u32::MAX.into()];
        // Integers halfway between two floats, from both sides of the bound up to which floats
        // represent every integer.
        let ties = (50..63).flat_map(|bit| [-1, 0, 1].map(|d| (1i64 << bit) + (1 << (bit - 53).max(0)) + d));
        let ties = ties.chain((53..63).map(|bit| (1i64 << bit) + (3 << (bit - 53))));
        for i in ends.into_iter().chain(ties.flat_map(|i| [i, -i])) {
            assert_eq!(f64::of(i.cast_unsigned()).to_bits(), (i as f64).to_bits(), "{i}");
        }
    }

    #[test]
    fn rejects_exponents_out_of_range() {
        let message = |r: Result<Scale<f32>>| r.unwrap_err().message().to_owned();
        assert_eq!(message(Scale::new(11, 0)), "ALP: expected an exponent e of 0 to 10, got 11");
        assert_eq!(
            message(Scale::new(0, u32::MAX)),
            "ALP: expected an exponent f of 0 to 10, got 4294967295"
        );
        assert!(Scale::<f64>::new(18, 18).is_ok() && Scale::<f64>::new(19, 0).is_err());
    }
}
