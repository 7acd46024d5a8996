//! Values that an encoding could not hold, put back where they belong.

use crossdock_plugin_api::{Error, Result};

use super::bits::{self, Bits};
use super::words::{Index, same_len};

/// How many values of the patched array a chunk offset stands for.
pub const CHUNK: usize = 1024;

/// Calls `put` with each patch's place in the array and its number. `offset` is taken off each index first: it is what was
/// cut off the front of the array. Refused are indices that do not rise, and those outside of an array of `len`.
#[inline]
pub fn each<I: Index>(
    indices: &[I],
    offset: usize,
    len: usize,
    mut put: impl FnMut(usize, usize),
) -> Result<()> {
    let mut least = 0;
    for (number, index) in indices.iter().enumerate() {
        let at = match index.index().checked_sub(offset) {
            Some(at) if at >= least && at < len => at,
            _ => return Err(misplaced(indices, number, offset, len)),
        };
        least = at + 1;
        put(at, number);
    }
    Ok(())
}

#[cold]
fn misplaced<I: Index>(indices: &[I], number: usize, offset: usize, len: usize) -> Error {
    let got = indices[number];
    match number.checked_sub(1).map(|before| indices[before]) {
        Some(before) if got <= before => Error::bad_data(format!(
            "patches: expected indices that rise, got {got} after {before} as number {number}"
        )),
        _ => Error::bad_data(format!(
            "patches: expected indices from {offset} on and below {offset} + {len}, got {got} as number {number}"
        )),
    }
}

/// Puts patches into decoded values, each through `step`: what the steps around a patched encoding do to its values.
///
/// On an error some may have been put already.
pub fn apply<I: Index, V: Copy, U>(
    indices: &[I],
    offset: usize,
    values: &[V],
    out: &mut [U],
    step: impl Fn(V) -> U,
) -> Result<()> {
    same_len("patches: values, one for each index", indices.len(), values.len())?;
    each(indices, offset, out.len(), |at, number| out[at] = step(values[number]))
}

/// Puts bits into a bitmap of `len` bits.
pub fn apply_bits<I: Index>(
    indices: &[I],
    offset: usize,
    values: Bits<'_>,
    out: &mut [u8],
    len: usize,
) -> Result<()> {
    values.must_be("patches: bits, one for each index", indices.len())?;
    same_len("patches: bytes of the bitmap", bits::bytes_of(len), out.len())?;
    each(indices, offset, len, |at, number| bits::set(out, at, values.get(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_replace_values_and_go_through_the_step() {
        let mut out = [1u32; 6];
        apply(&[12u8, 15], 11, &[7u32, 8], &mut out, |v| v + 100).unwrap();
        assert_eq!(out, [1, 107, 1, 1, 108, 1]);
        let mut bitmap = [0b1000_0001];
        apply_bits(&[12u64, 18], 11, Bits::new(&[0b01], 0, 2).unwrap(), &mut bitmap, 8).unwrap();
        assert_eq!(bitmap, [0b0000_0011]);
    }

    #[test]
    fn indices_that_do_not_rise_or_lie_outside_are_refused() {
        let refused = |indices: &[u16], offset| {
            let values = vec![0u8; indices.len()];
            apply(indices, offset, &values, &mut [0u8; 10], |v| v).unwrap_err().message().to_owned()
        };
        assert_eq!(refused(&[1, 1], 0), "patches: expected indices that rise, got 1 after 1 as number 1");
        assert_eq!(refused(&[4, 3], 0), "patches: expected indices that rise, got 3 after 4 as number 1");
        let outside = "patches: expected indices from";
        assert_eq!(refused(&[1, 10], 0), format!("{outside} 0 on and below 0 + 10, got 10 as number 1"));
        assert_eq!(refused(&[6, 9], 7), format!("{outside} 7 on and below 7 + 10, got 6 as number 0"));
        assert_eq!(refused(&[65535], 0), format!("{outside} 0 on and below 0 + 10, got 65535 as number 0"));
        assert!(each(&[u64::MAX], 0, usize::MAX, |_, _| ()).is_err());
    }

    #[test]
    fn another_number_of_values_is_refused() {
        let e = apply(&[1u8], 0, &[0u8; 2], &mut [0u8; 4], |v| v).unwrap_err();
        assert_eq!(e.message(), "patches: values, one for each index: expected 1, got 2");
        assert!(apply_bits(&[1u8], 0, Bits::new(&[0], 0, 2).unwrap(), &mut [0], 4).is_err());
        assert!(apply_bits(&[1u8], 0, Bits::new(&[0], 0, 1).unwrap(), &mut [0, 0], 4).is_err());
    }
}
