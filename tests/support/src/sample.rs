//! Selects which of many similar checks run in a test.
//!
//! Without `CROSSDOCK_TEST_SAMPLE`, every check runs. If the variable is set to a number, as in the
//! short tier of the tests, each test with many similar checks runs only a part of them. The number
//! selects the part. If a test runs one in `n` checks, `n` consecutive numbers select each check
//! once.

/// The environment variable that selects the sample.
pub const VARIABLE: &str = "CROSSDOCK_TEST_SAMPLE";

/// The number that selects the sample. `None` if every check runs.
///
/// # Panics
///
/// If the value of the variable is not a number.
#[allow(clippy::panic)]
pub fn number() -> Option<u64> {
    let text = std::env::var_os(VARIABLE)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{VARIABLE}={}: expected a number", text.display())))
}

/// Whether the check with this name runs, if one in `one_in` checks runs.
pub fn picks(key: &str, one_in: u64) -> bool {
    number().is_none_or(|number| residue(number, key, 0, one_in) == 0)
}

/// The indices, out of `len`, of the checks that run, if one in `one_in` checks runs. Returns at
/// least one index, unless `len` is 0. `key` is the name of the list of checks. Lists of the same
/// length with different names do not always select the same indices.
pub fn indices(key: &str, len: usize, one_in: u64) -> Vec<usize> {
    match number() {
        Some(number) => selected(number, key, len, one_in),
        None => (0..len).collect(),
    }
}

/// The numbers of the cases that run, as a part of the range `0..cases`, if one in `one_in` cases
/// runs.
pub fn range(cases: u64, one_in: u64) -> std::ops::Range<u64> {
    number().map_or(0..cases, |number| window(number, cases, one_in))
}

fn window(number: u64, cases: u64, one_in: u64) -> std::ops::Range<u64> {
    let (one_in, turn) = (one_in.max(1), number % one_in.max(1));
    cases * turn / one_in..cases * (turn + 1) / one_in
}

fn selected(number: u64, key: &str, len: usize, one_in: u64) -> Vec<usize> {
    // Limits `one_in` to `len`, so that at least one of the consecutive indices has residue 0.
    let one_in = one_in.min(len as u64);
    (0..len).filter(|index| residue(number, key, *index as u64, one_in) == 0).collect()
}

/// The residue increases by 1 if the number increases by 1, so `one_in` consecutive numbers have
/// the residue 0 exactly once.
fn residue(number: u64, key: &str, index: u64, one_in: u64) -> u64 {
    let one_in = one_in.max(1);
    (hash(key) % one_in + number % one_in + index % one_in) % one_in
}

/// The FNV-1a hash. Unlike the hash of the standard library, it is the same in every release of the
/// compiler.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn consecutive_numbers_select_every_check_once() {
        for key in ["", "a", "cuMemcpyAsync", "NULL_DROPPED"] {
            for first in [0, 17, u64::MAX - 20] {
                let n_selected = (first..first + 8).filter(|number| residue(*number, key, 0, 8) == 0).count();
                assert_eq!(n_selected, 1, "{key} from {first}");
            }
        }
    }

    #[test]
    fn samples_with_consecutive_numbers_are_not_empty_and_cover_the_list() {
        for len in 1..40 {
            let samples = (0..8).map(|number| selected(number, "key", len, 8));
            let samples: Vec<_> = samples.inspect(|sample| assert!(!sample.is_empty(), "{len}")).collect();
            assert!(samples.iter().all(|sample| sample.len() <= len.div_ceil(8.min(len))), "{samples:?}");
            let all: BTreeSet<_> = samples.concat().into_iter().collect();
            assert_eq!(all, (0..len).collect());
        }
        assert!(selected(3, "key", 0, 8).is_empty());
    }

    #[test]
    fn ranges_of_consecutive_numbers_cover_all_cases() {
        for (cases, one_in) in [(2500, 8), (7, 3), (1, 1)] {
            let ranges = (0..one_in).flat_map(|number| window(number, cases, one_in));
            assert_eq!(ranges.collect::<Vec<_>>(), (0..cases).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_in_n_sample_of_n_elements_has_one_element() {
        assert_eq!(selected(5, "key", 9, 9).len(), 1);
        assert_eq!(selected(5, "key", 1, 1), [0]);
    }

    #[test]
    fn different_keys_are_selected_by_different_numbers() {
        let keys: Vec<_> = (0..64).map(|n| format!("key {n}")).collect();
        let n_selected = keys.iter().filter(|key| residue(1, key, 0, 8) == 0).count();
        assert!((2..=20).contains(&n_selected), "{n_selected} of 64");
    }
}
