//! Converts unscaled decimals to the widths of Arrow's types.

use crossdock_plugin_api::{Error, Result};

use super::bits::Bits;
use super::words::check_len;

/// A 256-bit integer: the unsigned lower half, then the signed upper half.
pub type Wide = [i128; 2];

/// Sign-extends integers of up to 16 bytes to 16 bytes.
pub fn widen<S: Copy + Into<i128>>(from: &[S], out: &mut [i128]) -> Result<()> {
    check_len("decimals: values", out.len(), from.len())?;
    out.iter_mut().zip(from).for_each(|(out, value)| *out = (*value).into());
    Ok(())
}

/// Sign-extends integers of up to 16 bytes to 32 bytes.
pub fn widen_to_256<S: Copy + Into<i128>>(from: &[S], out: &mut [Wide]) -> Result<()> {
    check_len("decimals: values", out.len(), from.len())?;
    for (out, value) in out.iter_mut().zip(from) {
        let low: i128 = (*value).into();
        *out = [low, low >> 127];
    }
    Ok(())
}

/// Narrows integers of 32 bytes to 16 bytes. Rejects a non-null value that does not fit.
pub fn narrow_from_256(from: &[Wide], valid: Option<Bits<'_>>, out: &mut [i128]) -> Result<()> {
    check_len("decimals: values", out.len(), from.len())?;
    if let Some(valid) = valid {
        valid.expect_len("decimals: validity bits", from.len())?;
    }
    for (i, (out, [low, high])) in out.iter_mut().zip(from).enumerate() {
        if *high != low >> 127 && valid.is_none_or(|valid| valid.get(i)) {
            return Err(Error::bad_data(format!(
                "decimals: the value at index {i} does not fit into 128 bits: its upper half is {high:#x}"
            )));
        }
        *out = *low;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_keeps_the_sign() {
        let mut out = [0; 3];
        widen(&[-1i8, 0, 127], &mut out).unwrap();
        assert_eq!(out, [-1, 0, 127]);
        let mut out = [[0; 2]; 4];
        widen_to_256(&[i64::MIN, -1, 0, i64::MAX], &mut out).unwrap();
        assert_eq!(out, [[i64::MIN.into(), -1], [-1, -1], [0, 0], [i64::MAX.into(), 0]]);
        widen_to_256(&[i128::MIN], &mut out[..1]).unwrap();
        assert_eq!(out[0], [i128::MIN, -1]);
    }

    #[test]
    fn narrowing_rejects_numbers_that_do_not_fit() {
        let mut out = [0; 3];
        narrow_from_256(&[[i128::MIN, -1], [-1, -1], [i128::MAX, 0]], None, &mut out).unwrap();
        assert_eq!(out, [i128::MIN, -1, i128::MAX]);
        for wrong in [[i128::MIN, 0], [-1, 0], [i128::MAX, -1], [0, 1]] {
            let numbers = [[5, 0], wrong];
            let e = narrow_from_256(&numbers, None, &mut out[..2]).unwrap_err();
            let expected = format!(
                "decimals: the value at index 1 does not fit into 128 bits: its upper half is {:#x}",
                wrong[1]
            );
            assert_eq!(e.message(), expected);
            let valid = |bits| Some(Bits::new(bits, 0, 2).unwrap());
            narrow_from_256(&numbers, valid(&[0b01]), &mut out[..2]).unwrap();
            assert!(narrow_from_256(&numbers, valid(&[0b10]), &mut out[..2]).is_err());
        }
    }

    #[test]
    fn rejects_mismatched_lengths() {
        assert!(widen(&[1i8], &mut []).is_err() && widen_to_256(&[1i8], &mut []).is_err());
        assert!(narrow_from_256(&[[0; 2]], None, &mut [0; 2]).is_err());
        assert!(narrow_from_256(&[[0; 2]], Some(Bits::new(&[], 0, 0).unwrap()), &mut [0]).is_err());
    }
}
