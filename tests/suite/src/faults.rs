//! Which faults are injected, and at which of their occurrences.

use std::collections::BTreeSet;

use crossdock_test_support::sample;

/// With the value `all`, at every one: `cargo xtask soak` sets it.
pub const VARIABLE: &str = "CROSSDOCK_FAULTS";

/// Whether all occurrences are asked for.
pub fn all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// The indices of those of `len` faults, or of the cases in which they are injected, that this run has: all of them where all
/// occurrences are asked for or nothing is sampled, else one in `one_in`, and never none.
pub fn part(key: &str, len: usize, one_in: u64) -> Vec<usize> {
    if all() { (0..len).collect() } else { sample::indices(key, len, one_in) }
}

/// Whether this run has every case.
pub fn has_every_case() -> bool {
    all() || sample::number().is_none()
}

/// The first occurrences, the last one, and some between: what happens between is most often what happened before, in another batch.
/// All of them where that is asked for.
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
    fn the_first_and_the_last_are_always_chosen() {
        assert!(some(0, 3, 2).is_empty());
        assert_eq!(some(2, 3, 2), BTreeSet::from([1, 2]));
        assert_eq!(some(100, 3, 2), BTreeSet::from([1, 2, 3, 4, 54, 100]));
    }
}
