//! Expands runs of equal values, given the end of each run.

use crossdock_plugin_api::{Error, Result};

use super::bits::{self, Bits};
use super::words::{Index, check_len};

/// Number of values that are always written for a run, even if the run is shorter. The next run
/// overwrites the surplus values.
const CHUNK: usize = 16;

/// Calls `run` with each run's number and its range in an array of `len` values. The array begins
/// `offset` values after the start of the first run. Runs outside of the array are skipped.
///
/// # Errors
/// Returns an error if the ends are not strictly increasing, or if the last end is before the end
/// of the array.
#[inline]
pub fn for_each_run<E: Index>(
    ends: &[E],
    offset: usize,
    len: usize,
    mut run: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let (mut previous, mut from) = (0, 0);
    for (number, end) in ends.iter().enumerate() {
        let end = end.index();
        if end <= previous {
            return Err(Error::bad_data(format!(
                "run-end: expected strictly increasing ends, got {end} after {previous} at index {number}"
            )));
        }
        previous = end;
        let to = end.saturating_sub(offset).min(len);
        if to > from {
            run(number, from, to);
            from = to;
        }
    }
    if from == len {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "run-end: expected the last run to end at {offset} + {len} or later, got {previous}"
    )))
}

/// Writes the values of all runs to `out`.
pub fn expand<E: Index, V: Copy>(ends: &[E], values: &[V], offset: usize, out: &mut [V]) -> Result<()> {
    check_len("run-end: values, one per end", ends.len(), values.len())?;
    for_each_run(ends, offset, out.len(), |number, from, to| {
        let value = values[number];
        match out[from..].first_chunk_mut::<CHUNK>() {
            Some(begin) => {
                *begin = [value; CHUNK];
                if to - from > CHUNK {
                    out[from + CHUNK..to].fill(value);
                }
            }
            None => out[from..to].fill(value),
        }
    })
}

/// [`expand`] for bools and validity bits; `len` is the number of bits in `out`.
pub fn expand_bits<E: Index>(
    ends: &[E],
    values: Bits<'_>,
    offset: usize,
    out: &mut [u8],
    len: usize,
) -> Result<()> {
    values.expect_len("run-end: bits, one per end", ends.len())?;
    bits::fill(out, len, false)?;
    for_each_run(ends, offset, len, |number, from, to| {
        if values.get(number) {
            bits::set_range(out, from, to);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn expands_runs_up_to_the_end_of_the_array(
            runs in proptest::collection::vec((1usize..70, any::<u16>()), 1..40), cut in any::<(u16, u16)>()
        ) {
            let ends: Vec<u32> = runs.iter().scan(0, |at, r| { *at += r.0 as u32; Some(*at) }).collect();
            let values: Vec<u16> = runs.iter().map(|r| r.1).collect();
            let all: Vec<u16> = runs.iter().flat_map(|r| vec![r.1; r.0]).collect();
            let offset = usize::from(cut.0) % all.len();
            let len = usize::from(cut.1) % (all.len() - offset + 1);
            let mut out = vec![0; len];
            expand(&ends, &values, offset, &mut out).unwrap();
            prop_assert_eq!(&out, &all[offset..offset + len]);
            let mut odd = vec![0; bits::bitmap_bytes(runs.len())];
            values.iter().enumerate().for_each(|(i, v)| bits::set(&mut odd, i, v % 2 == 1));
            let mut set = vec![0xff; bits::bitmap_bytes(len)];
            expand_bits(&ends, Bits::new(&odd, 0, runs.len()).unwrap(), offset, &mut set, len).unwrap();
            let expected: Vec<u8> =
                out.chunks(8).map(|c| (0..).zip(c).fold(0, |b, (i, v)| b | ((v % 2) as u8) << i)).collect();
            prop_assert_eq!(set, expected);
            let mut more = vec![0; all.len() - offset + 1];
            prop_assert!(expand(&ends, &values, offset, &mut more).is_err());
        }
    }

    #[test]
    fn rejects_unordered_and_too_small_ends() {
        let error = |ends: &[u8], offset, len| {
            expand(ends, &vec![0u8; ends.len()], offset, &mut vec![0; len]).unwrap_err().message().to_owned()
        };
        assert_eq!(
            error(&[3, 3], 0, 3),
            "run-end: expected strictly increasing ends, got 3 after 3 at index 1"
        );
        assert_eq!(
            error(&[5, 4], 0, 4),
            "run-end: expected strictly increasing ends, got 4 after 5 at index 1"
        );
        assert_eq!(error(&[0], 0, 0), "run-end: expected strictly increasing ends, got 0 after 0 at index 0");
        assert_eq!(error(&[2, 4], 1, 4), "run-end: expected the last run to end at 1 + 4 or later, got 4");
        assert_eq!(error(&[], 0, 1), "run-end: expected the last run to end at 0 + 1 or later, got 0");
        assert!(expand(&[u64::MAX], &[1u8], usize::MAX, &mut [0]).is_err());
        assert!(expand::<u8, u8>(&[], &[], 0, &mut []).is_ok());
    }

    #[test]
    fn rejects_wrong_number_of_values() {
        let e = expand(&[1u8, 2], &[0u8], 0, &mut [0; 2]).unwrap_err();
        assert_eq!(e.message(), "run-end: values, one per end: expected 2, got 1");
        let one = Bits::new(&[1], 0, 1).unwrap();
        assert!(expand_bits(&[1u8, 2], one, 0, &mut [0], 2).is_err());
        assert!(expand_bits(&[2u8], one, 0, &mut [0, 0], 2).is_err());
    }
}
