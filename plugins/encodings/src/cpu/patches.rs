//! Applies patches: values that an encoding could not represent.

use crossdock_plugin_api::{Error, Result};

use super::bits::{self, Bits};
use super::words::{Index, check_len};

/// A chunk is this many values of the patched array. Each chunk has one chunk offset.
pub const CHUNK: usize = 1024;

/// Calls `put` with the position in the array and the number of each patch. `offset` is subtracted
/// from each index. If the array is a slice, `offset` is the number of values before the slice.
///
/// # Errors
/// Returns an error if the indices are not strictly increasing, or if a position is not below
/// `len`.
#[inline]
pub fn for_each_patch<I: Index>(
    indices: &[I],
    offset: usize,
    len: usize,
    mut put: impl FnMut(usize, usize),
) -> Result<()> {
    let mut least = 0;
    for (number, index) in indices.iter().enumerate() {
        let at = match index.index().checked_sub(offset) {
            Some(at) if at >= least && at < len => at,
            _ => return Err(invalid_index(indices, number, offset, len)),
        };
        least = at + 1;
        put(at, number);
    }
    Ok(())
}

#[cold]
fn invalid_index<I: Index>(indices: &[I], number: usize, offset: usize, len: usize) -> Error {
    let got = indices[number];
    match number.checked_sub(1).map(|before| indices[before]) {
        Some(before) if got <= before => Error::bad_data(format!(
            "patches: expected strictly increasing indices, got {got} after {before} at position {number}"
        )),
        _ => Error::bad_data(format!(
            "patches: expected indices from {offset} to below {offset} + {len}, got {got} at position {number}"
        )),
    }
}

/// Overwrites decoded values with patches, after applying `step` to each patch. `step` applies the
/// encodings of the node's parents to a value.
///
/// After an error, some patches may have been written.
pub fn apply<I: Index, V: Copy, U>(
    indices: &[I],
    offset: usize,
    values: &[V],
    out: &mut [U],
    step: impl Fn(V) -> U,
) -> Result<()> {
    check_len("patches: values, one per index", indices.len(), values.len())?;
    for_each_patch(indices, offset, out.len(), |at, number| out[at] = step(values[number]))
}

/// Writes bits over a bitmap of `len` bits.
pub fn apply_bits<I: Index>(
    indices: &[I],
    offset: usize,
    values: Bits<'_>,
    out: &mut [u8],
    len: usize,
) -> Result<()> {
    values.expect_len("patches: bits, one per index", indices.len())?;
    check_len("patches: bytes of the bitmap", bits::bitmap_bytes(len), out.len())?;
    for_each_patch(indices, offset, len, |at, number| bits::set(out, at, values.get(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_replace_values_with_the_step_applied() {
        let mut out = [1u32; 6];
        apply(&[12u8, 15], 11, &[7u32, 8], &mut out, |v| v + 100).unwrap();
        assert_eq!(out, [1, 107, 1, 1, 108, 1]);
        let mut bitmap = [0b1000_0001];
        apply_bits(&[12u64, 18], 11, Bits::new(&[0b01], 0, 2).unwrap(), &mut bitmap, 8).unwrap();
        assert_eq!(bitmap, [0b0000_0011]);
    }

    #[test]
    fn rejects_unordered_and_out_of_range_indices() {
        let error = |indices: &[u16], offset| {
            let values = vec![0u8; indices.len()];
            apply(indices, offset, &values, &mut [0u8; 10], |v| v).unwrap_err().message().to_owned()
        };
        assert_eq!(
            error(&[1, 1], 0),
            "patches: expected strictly increasing indices, got 1 after 1 at position 1"
        );
        assert_eq!(
            error(&[4, 3], 0),
            "patches: expected strictly increasing indices, got 3 after 4 at position 1"
        );
        let outside = "patches: expected indices from";
        assert_eq!(error(&[1, 10], 0), format!("{outside} 0 to below 0 + 10, got 10 at position 1"));
        assert_eq!(error(&[6, 9], 7), format!("{outside} 7 to below 7 + 10, got 6 at position 0"));
        assert_eq!(error(&[65535], 0), format!("{outside} 0 to below 0 + 10, got 65535 at position 0"));
        assert!(for_each_patch(&[u64::MAX], 0, usize::MAX, |_, _| ()).is_err());
    }

    #[test]
    fn rejects_wrong_number_of_values() {
        let e = apply(&[1u8], 0, &[0u8; 2], &mut [0u8; 4], |v| v).unwrap_err();
        assert_eq!(e.message(), "patches: values, one per index: expected 1, got 2");
        assert!(apply_bits(&[1u8], 0, Bits::new(&[0], 0, 2).unwrap(), &mut [0], 4).is_err());
        assert!(apply_bits(&[1u8], 0, Bits::new(&[0], 0, 1).unwrap(), &mut [0, 0], 4).is_err());
    }
}
