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

/// Refuses chunk offsets that do not fit the indices, for those who find patches by them; nothing here needs them.
///
/// There is one for each 1024 values of the array before it was cut, as far as they overlap the array. Offset `c` less the
/// first one and less `skipped` (the patches that were cut off the first chunk) is the number of the first patch that lies
/// in chunk `c` or later. What that makes negative is 0, what it makes too great is all patches.
pub fn check_chunk_offsets<I: Index, C: Index>(
    indices: &[I],
    offset: usize,
    len: usize,
    chunk_offsets: &[C],
    skipped: usize,
) -> Result<()> {
    let cut = offset % CHUNK;
    let chunks = len.checked_add(cut).map_or(usize::MAX, |n| n.div_ceil(CHUNK));
    same_len("patches: chunk offsets", chunks, chunk_offsets.len())?;
    let first = chunk_offsets.first().map_or(0, |c| c.index());
    let mut expected = 0;
    for (chunk, chunk_offset) in chunk_offsets.iter().enumerate() {
        // The first patch that is not before this chunk.
        let begins = (offset - cut).saturating_add(chunk * CHUNK);
        while expected < indices.len() && indices[expected].index() < begins {
            expected += 1;
        }
        let number = chunk_offset.index().checked_sub(first);
        if number.map(|number| number.saturating_sub(skipped).min(indices.len())) != Some(expected) {
            return Err(Error::bad_data(format!(
                "patches: expected chunk offset {chunk} to name patch {expected}, got {chunk_offset} after {first} and {skipped}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn chunk_offsets_of_a_cut_array_are_accepted_and_others_are_not(
            steps in proptest::collection::vec(1usize..700, 1..40), cut in any::<(u16, u16)>(), wrong: u16
        ) {
            // Patches of a whole array, and what cutting it leaves of them and of their chunk offsets.
            let all: Vec<usize> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
            let total = all.last().unwrap() + 1;
            let chunks: Vec<u32> =
                (0..total.div_ceil(CHUNK)).map(|c| all.iter().filter(|i| **i < c * CHUNK).count() as u32).collect();
            let from = usize::from(cut.0) % total;
            let len = usize::from(cut.1) % (total - from) + 1;
            let before = all.iter().filter(|i| **i < from).count();
            let kept: Vec<u64> =
                all.iter().filter(|i| (from..from + len).contains(i)).map(|i| *i as u64).collect();
            let mut offsets = chunks[from / CHUNK..(from + len).div_ceil(CHUNK)].to_vec();
            let skipped = before - offsets[0] as usize;
            check_chunk_offsets(&kept, from, len, &offsets, skipped).unwrap();
            let at = usize::from(wrong) % offsets.len();
            if at > 0 && (offsets[at] - offsets[0]) as usize >= skipped {
                offsets[at] += 1;
                let past_all = (offsets[at] - offsets[0]) as usize - skipped > kept.len();
                prop_assert_eq!(check_chunk_offsets(&kept, from, len, &offsets, skipped).is_ok(), past_all);
            }
            offsets.push(0);
            prop_assert!(check_chunk_offsets(&kept, from, len, &offsets, skipped).is_err());
        }
    }

    #[test]
    fn chunk_offsets_that_fall_are_refused() {
        let e = check_chunk_offsets(&[5u16, 1500], 0, 2048, &[3u8, 2], 0).unwrap_err();
        let expected = "patches: expected chunk offset 1 to name patch 1, got 2 after 3 and 0";
        assert_eq!(e.message(), expected);
        assert!(check_chunk_offsets::<u8, u8>(&[], usize::MAX, usize::MAX, &[], 0).is_err());
    }
}
