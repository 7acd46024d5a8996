//! Places of numbers among those of a narrower type.

use std::cmp::Ordering;

use crossdock_kernels::{ComparedType, NumberType};

use super::exact::{Place, signed_cmp};

/// The place among the floats of a narrower type. `rounded` returns the nearest of these floats,
/// and `before` the next lower one.
pub(super) fn among(
    place: Place<f64>,
    rounded: impl Fn(f64) -> f64,
    before: impl Fn(f64) -> f64,
) -> Place<f64> {
    let (x, is_exact) = match place {
        Place::At(x) => (x, true),
        Place::After(x) => (x, false),
        outside => return outside,
    };
    let nearest = rounded(x);
    match nearest.partial_cmp(&x) {
        Some(Ordering::Equal) if is_exact => Place::At(nearest),
        Some(Ordering::Greater) => Place::After(before(nearest)),
        _ => Place::After(nearest),
    }
}

/// Limits a place to the range of a type of integers.
pub(super) fn within(place: Place<[u64; 4]>, of: ComparedType) -> Place<[u64; 4]> {
    let (at, is_exact) = match place {
        Place::At(at) => (at, true),
        Place::After(at) => (at, false),
        outside => return outside,
    };
    let is_unsigned = matches!(
        of,
        ComparedType::Number(
            NumberType::UInt8 | NumberType::UInt16 | NumberType::UInt32 | NumberType::UInt64
        )
    );
    let bits = of.width_bytes() as u32 * 8 - u32::from(!is_unsigned);
    let max: [u64; 4] = std::array::from_fn(|i| {
        let word_bits = bits.saturating_sub(64 * i as u32);
        if word_bits >= 64 { u64::MAX } else { (1 << word_bits) - 1 }
    });
    let min = if is_unsigned { [0; 4] } else { max.map(|word| !word) };
    match (signed_cmp(at, min), signed_cmp(at, max)) {
        (Ordering::Less, _) => Place::Below,
        // A literal after the maximum is greater than each value.
        (_, Ordering::Greater) => Place::Above,
        (_, Ordering::Equal) if !is_exact => Place::Above,
        _ if is_exact => Place::At(at),
        _ => Place::After(at),
    }
}

/// Converts to the nearest float of 2 bytes, ties to even.
pub(super) fn to_f16(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = x.abs();
    // 65520 is halfway between the greatest finite half and the next power of two.
    if x >= 65520.0 {
        return sign | 0x7c00;
    }
    // The distance between adjacent halves is 2^-24 for subnormal numbers, and doubles with each
    // power of two above 2^-14. Halves of one sign are numbered in ascending order.
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(-14);
    let steps = (x * 2f64.powi(10 - exponent)).round_ties_even();
    sign | (((exponent + 14) as u16) << 10).wrapping_add(steps as u16)
}

pub(super) fn of_f16(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let value = match bits >> 10 & 31 {
        31 => f64::INFINITY,
        0 => fraction * 2f64.powi(-24),
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -value } else { value }
}

/// The greatest half less than a half.
pub(super) fn f16_before(x: f64) -> f64 {
    let bits = to_f16(x);
    match bits {
        0 | 0x8000 => of_f16(0x8001),
        bits if bits >> 15 == 0 => of_f16(bits - 1),
        0xfc00 => f64::NEG_INFINITY,
        bits => of_f16(bits + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_floats_survive_a_round_trip() {
        for bits in (0..=0x7c00).chain(0x8000..=0xfc00) {
            assert_eq!(to_f16(of_f16(bits)), bits);
        }
    }

    #[test]
    fn finds_the_half_before_each_number() {
        let ascending: Vec<f64> = (0x8001..=0xfc00).rev().chain(0..=0x7c00).map(of_f16).collect();
        for pair in ascending.windows(2) {
            assert_eq!(f16_before(pair[1]), pair[0]);
            let middle = f64::midpoint(pair[0], pair[1]);
            if middle.is_finite() {
                let place = among(Place::At(middle), |x| of_f16(to_f16(x)), f16_before);
                assert_eq!(place, Place::After(pair[0]), "{middle}");
            }
        }
    }

    #[test]
    fn limits_places_to_the_range_of_integers() {
        let units = |n: i128| [n as u64, (n >> 64) as u64, (n >> 127) as u64, (n >> 127) as u64];
        let of = ComparedType::Number(NumberType::Int8);
        assert_eq!(within(Place::At(units(127)), of), Place::At(units(127)));
        assert_eq!(within(Place::After(units(127)), of), Place::Above);
        assert_eq!(within(Place::At(units(128)), of), Place::Above);
        assert_eq!(within(Place::At(units(-128)), of), Place::At(units(-128)));
        assert_eq!(within(Place::After(units(-129)), of), Place::Below);
        let of = ComparedType::Number(NumberType::UInt64);
        assert_eq!(within(Place::At(units(u64::MAX.into())), of), Place::At(units(u64::MAX.into())));
        assert_eq!(within(Place::At(units(-1)), of), Place::Below);
        assert_eq!(within(Place::At(units(1 << 64)), of), Place::Above);
        assert_eq!(within(Place::At(units(i128::MAX)), ComparedType::Int128), Place::At(units(i128::MAX)));
        assert_eq!(within(Place::At([0, 0, 1, 0]), ComparedType::Int128), Place::Above);
        assert_eq!(
            within(Place::At([0, 0, 0, 1 << 63]), ComparedType::Int256),
            Place::At([0, 0, 0, 1 << 63])
        );
    }
}
