//! Selects the failures that a test injects, and the occurrences of an operation at which it
//! injects them.

use std::collections::BTreeSet;

use crossdock_test_support::sample;

/// If this variable has the value `all`, failures are injected at every occurrence. `cargo xtask
/// soak` sets the variable.
pub const VARIABLE: &str = "CROSSDOCK_FAULTS";

/// Whether failures are injected at all occurrences.
pub fn all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// Selects the failures or cases that this run tests, as indices less than `len`. Selects all
/// indices if failures are injected at all occurrences or if the run is not a sample. Otherwise
/// selects one in `one_in` indices, but at least one index.
pub fn part(key: &str, len: usize, one_in: u64) -> Vec<usize> {
    if all() { (0..len).collect() } else { sample::indices(key, len, one_in) }
}

/// Whether this run tests every case.
pub fn has_every_case() -> bool {
    all() || sample::number().is_none()
}

/// Selects the first occurrences, the last occurrence, and a few occurrences between them. A
/// selection is enough, because most later occurrences repeat the first occurrences with another
/// batch. If failures are injected at all occurrences, selects all occurrences.
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
    fn fault_sample_always_includes_first_and_last_occurrences() {
        assert!(some(0, 3, 2).is_empty());
        assert_eq!(some(2, 3, 2), BTreeSet::from([1, 2]));
        assert_eq!(some(100, 3, 2), BTreeSet::from([1, 2, 3, 4, 54, 100]));
    }
}
