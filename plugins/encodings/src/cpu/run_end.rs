//! Runs of equal values of fixed width, each told by where it ends.

use crossdock_plugin_api::{Error, Result};

use super::bits::{self, Bits};
use super::words::{Index, same_len};

/// As much of a run as is written without asking how long it is; the next run writes over what was too much.
const AT_ONCE: usize = 16;

/// Calls `run` with each run's number and its range of an array of `len`, which begins `offset` values into the first runs.
///
/// Refused are ends that do not rise, and a last one before the array's end. What ends before the array begins, or begins
/// after it ends, is passed over.
#[inline]
pub fn each<E: Index>(
    ends: &[E],
    offset: usize,
    len: usize,
    mut run: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let (mut before, mut from) = (0, 0);
    for (number, end) in ends.iter().enumerate() {
        let end = end.index();
        if end <= before {
            return Err(Error::bad_data(format!(
                "run-end: expected ends that rise, got {end} after {before} as number {number}"
            )));
        }
        before = end;
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
        "run-end: expected a last end of {len} after {offset} or more, got {before}"
    )))
}

/// Writes the values of all runs.
pub fn expand<E: Index, V: Copy>(ends: &[E], values: &[V], offset: usize, out: &mut [V]) -> Result<()> {
    same_len("run-end: values, one for each end", ends.len(), values.len())?;
    each(ends, offset, out.len(), |number, from, to| {
        let value = values[number];
        match out[from..].first_chunk_mut::<AT_ONCE>() {
            Some(begin) => {
                *begin = [value; AT_ONCE];
                if to - from > AT_ONCE {
                    out[from + AT_ONCE..to].fill(value);
                }
            }
            None => out[from..to].fill(value),
        }
    })
}

/// The same for truth values, and for which runs are valid; `len` is how many bits `out` holds.
pub fn expand_bits<E: Index>(
    ends: &[E],
    values: Bits<'_>,
    offset: usize,
    out: &mut [u8],
    len: usize,
) -> Result<()> {
    values.must_be("run-end: bits, one for each end", ends.len())?;
    bits::fill(out, len, false)?;
    each(ends, offset, len, |number, from, to| {
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
        fn runs_are_written_as_far_as_the_array_goes(
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
            let mut odd = vec![0; bits::bytes_of(runs.len())];
            values.iter().enumerate().for_each(|(i, v)| bits::set(&mut odd, i, v % 2 == 1));
            let mut set = vec![0xff; bits::bytes_of(len)];
            expand_bits(&ends, Bits::new(&odd, 0, runs.len()).unwrap(), offset, &mut set, len).unwrap();
            let expected: Vec<u8> =
                out.chunks(8).map(|c| (0..).zip(c).fold(0, |b, (i, v)| b | ((v % 2) as u8) << i)).collect();
            prop_assert_eq!(set, expected);
            let mut more = vec![0; all.len() - offset + 1];
            prop_assert!(expand(&ends, &values, offset, &mut more).is_err());
        }
    }

    #[test]
    fn ends_that_do_not_rise_or_do_not_reach_are_refused() {
        let refused = |ends: &[u8], offset, len| {
            expand(ends, &vec![0u8; ends.len()], offset, &mut vec![0; len]).unwrap_err().message().to_owned()
        };
        assert_eq!(refused(&[3, 3], 0, 3), "run-end: expected ends that rise, got 3 after 3 as number 1");
        assert_eq!(refused(&[5, 4], 0, 4), "run-end: expected ends that rise, got 4 after 5 as number 1");
        assert_eq!(refused(&[0], 0, 0), "run-end: expected ends that rise, got 0 after 0 as number 0");
        assert_eq!(refused(&[2, 4], 1, 4), "run-end: expected a last end of 4 after 1 or more, got 4");
        assert_eq!(refused(&[], 0, 1), "run-end: expected a last end of 1 after 0 or more, got 0");
        assert!(expand(&[u64::MAX], &[1u8], usize::MAX, &mut [0]).is_err());
        assert!(expand::<u8, u8>(&[], &[], 0, &mut []).is_ok());
    }

    #[test]
    fn another_number_of_values_is_refused() {
        let e = expand(&[1u8, 2], &[0u8], 0, &mut [0; 2]).unwrap_err();
        assert_eq!(e.message(), "run-end: values, one for each end: expected 2, got 1");
        let one = Bits::new(&[1], 0, 1).unwrap();
        assert!(expand_bits(&[1u8, 2], one, 0, &mut [0], 2).is_err());
        assert!(expand_bits(&[2u8], one, 0, &mut [0, 0], 2).is_err());
    }
}
