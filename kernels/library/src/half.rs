//! Converts floats of 2 bytes.

/// Converts a half to `f64`. Every NaN becomes the same quiet NaN.
pub(crate) fn half_to_f64(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let value = match bits >> 10 & 31 {
        31 if bits & 0x3ff != 0 => return f64::from_bits(0x7ff8 << 48),
        31 => f64::INFINITY,
        // The fraction of a subnormal number counts units of 2^-24.
        0 => fraction / f64::from(1 << 24),
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -value } else { value }
}

/// Converts to the nearest half, ties to even.
pub(crate) fn half_from_f64(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = x.abs();
    if x.is_nan() {
        return 0x7e00;
    }
    // 65520 is halfway between the greatest finite half and the next power of two. Ties to even
    // round it to infinity.
    if x >= 65520.0 {
        return sign | 0x7c00;
    }
    // The distance between adjacent halves is 2^-24 for subnormal numbers, and doubles with each
    // power of two above 2^-14.
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(-14);
    let units = (x * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // If rounding carries out of the fraction, the carry increments the exponent, which is correct.
    let base = if units < 1024 { 0 } else { (exponent + 14) as u16 * 1024 };
    sign | (base + units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_keeps_every_half() {
        for bits in 0..=u16::MAX {
            let is_nan = bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
            assert_eq!(half_from_f64(half_to_f64(bits)), if is_nan { 0x7e00 } else { bits });
        }
    }

    #[test]
    fn rounds_to_nearest_and_ties_to_even() {
        for bits in 0..0x7c00u16 {
            let (low, high) =
                (half_to_f64(bits), if bits == 0x7bff { 65536.0 } else { half_to_f64(bits + 1) });
            let middle = (low + high) / 2.0;
            assert_eq!(half_from_f64(middle), bits + (bits & 1), "{bits:#x}");
            assert_eq!(half_from_f64(middle.next_down()), bits);
            assert_eq!(half_from_f64(-middle.next_up()), 0x8000 | (bits + 1));
        }
    }
}
