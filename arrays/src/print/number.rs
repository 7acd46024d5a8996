//! Formats numbers for which Rust has no formatting: half floats and wide decimals.

/// Formats a float of 2, 4 or 8 bytes.
pub(super) fn float(bytes: &[u8]) -> String {
    match *bytes {
        [a, b] => half(u16::from_ne_bytes([a, b])).to_string(),
        [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]).to_string(),
        [a, b, c, d, e, f, g, h] => f64::from_ne_bytes([a, b, c, d, e, f, g, h]).to_string(),
        _ => String::new(),
    }
}

/// Converts an IEEE 754 binary16 number.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// Formats a two's complement integer of any number of bytes, with `scale` digits after the decimal
/// point. A negative scale appends zeros.
pub(super) fn decimal(bytes: &[u8], scale: i8) -> String {
    let mut little = bytes.to_vec();
    if cfg!(target_endian = "big") {
        little.reverse();
    }
    let negative = little.last().is_some_and(|top| top >> 7 == 1);
    if negative {
        let mut carry = true;
        for byte in &mut little {
            (*byte, carry) = (!*byte).overflowing_add(carry.into());
        }
    }
    let mut digits = digits(little);
    match usize::from(scale.unsigned_abs()) {
        0 => {}
        places if scale > 0 => {
            let pad = (places + 1).saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(pad));
            digits.insert(digits.len() - places, '.');
        }
        zeros => digits.push_str(&"0".repeat(zeros)),
    }
    if negative { format!("-{digits}") } else { digits }
}

/// The decimal digits of an unsigned little-endian number.
fn digits(mut little: Vec<u8>) -> String {
    let mut digits = Vec::new();
    loop {
        let mut rest = 0u32;
        for byte in little.iter_mut().rev() {
            let part = rest << 8 | u32::from(*byte);
            // `rest` is below 10, so the quotient is below 256.
            *byte = (part / 10) as u8;
            rest = part % 10;
        }
        digits.push(char::from(b'0' + rest as u8));
        if little.iter().all(|byte| *byte == 0) {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_decimals_with_sign_point_and_leading_zeros() {
        assert_eq!(decimal(&(-5i128).to_ne_bytes(), 2), "-0.05");
        assert_eq!(decimal(&12345i32.to_ne_bytes(), 3), "12.345");
        assert_eq!(decimal(&7i64.to_ne_bytes(), -2), "700");
        assert_eq!(decimal(&i128::MIN.to_ne_bytes(), 0), i128::MIN.to_string());
        assert_eq!(decimal(&[0; 32], 1), "0.0");
    }

    #[test]
    fn formats_half_floats() {
        assert_eq!(float(&0x3c00u16.to_ne_bytes()), "1");
        assert_eq!(float(&0xc000u16.to_ne_bytes()), "-2");
        assert_eq!(float(&0x7c00u16.to_ne_bytes()), "inf");
        assert_eq!(float(&0x0001u16.to_ne_bytes()), "0.000000059604645");
    }
}
