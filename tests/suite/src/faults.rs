//! Selects which failures are injected, and at which occurrences.

use std::collections::BTreeSet;

use crossdock_test_support::sample;

/// With the value `all`, failures are injected at every occurrence. `cargo xtask soak` sets it.
pub const VARIABLE: &str = "CROSSDOCK_FAULTS";

/// Whether failures are injected at all occurrences.
pub fn all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// The indices of the failures or cases out of `len` that this run has: all of them if failures are
/// injected at all occurrences or nothing is sampled, else one in `one_in`, and at least one.
pub fn part(key: &str, len: usize, one_in: u64) -> Vec<usize> {
    if all() { (0..len).collect() } else { sample::indices(key, len, one_in) }
}

/// Whether this run has every case.
pub fn has_every_case() -> bool {
    all() || sample::number().is_none()
}

/// The first occurrences, the last one, and some in between: those in between are mostly like the
/// first ones, in another batch. All of them if failures are injected at all occurrences.
pub fn chosen(occurrences: u64, first: u64, between: u64) -> BTreeSet<u64> {
    if all() { (1..=occurrences).collect() } else { some(occurrences, first, between) }
}

fn some(occurrences: u64, first: u64, between: u64) -> BTreeSet<u64> {
    let step = (occurrences / between.max(1)).max(1) as usize;
    (1..=occurrences.min(first))
        .chain((first + 1..=occurrences).step_by(step))
        .chain([occurrences])
        .filter(|nth| *nth > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_occurrences_are_always_chosen() {
        assert!(some(0, 3, 2).is_empty());
        assert_eq!(some(2, 3, 2), BTreeSet::from([1, 2]));
        assert_eq!(some(100, 3, 2), BTreeSet::from([1, 2, 3, 4, 54, 100]));
    }
}
