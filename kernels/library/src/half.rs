//! Floats of 2 bytes, which the language does not have.

/// Its value; every NaN becomes the quiet one.
pub(crate) fn half_to(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let value = match bits >> 10 & 31 {
        31 if bits & 0x3ff != 0 => return f64::from_bits(0x7ff8 << 48),
        31 => f64::INFINITY,
        // Subnormal ones are so many times 2^-24.
        0 => fraction / f64::from(1 << 24),
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits >> 15 == 1 { -value } else { value }
}

/// The nearest, ties to even.
pub(crate) fn half_of(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = x.abs();
    if x.is_nan() {
        return 0x7e00;
    }
    // Halfway between the greatest and the one that there would be after it.
    if x >= 65520.0 {
        return sign | 0x7c00;
    }
    // How far apart its neighbours lie: 2^-24 among the subnormal ones, doubling with each power of two above 2^-14.
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(-14);
    let units = (x * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // A carry out of the fraction is one into the exponent, as it should be.
    let base = if units < 1024 { 0 } else { (exponent + 14) as u16 * 1024 };
    sign | (base + units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_there_and_back() {
        for bits in 0..=u16::MAX {
            let is_nan = bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
            assert_eq!(half_of(half_to(bits)), if is_nan { 0x7e00 } else { bits });
        }
    }

    #[test]
    fn what_lies_between_two_goes_to_the_nearer_and_a_tie_to_the_even() {
        for bits in 0..0x7c00u16 {
            let (low, high) = (half_to(bits), if bits == 0x7bff { 65536.0 } else { half_to(bits + 1) });
            let middle = (low + high) / 2.0;
            assert_eq!(half_of(middle), bits + (bits & 1), "{bits:#x}");
            assert_eq!(half_of(middle.next_down()), bits);
            assert_eq!(half_of(-middle.next_up()), 0x8000 | (bits + 1));
        }
    }
}
