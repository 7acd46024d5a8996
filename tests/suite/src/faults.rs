//! At which of a fault's occurrences it is injected.

use std::collections::BTreeSet;

/// With the value `all`, at every one: `cargo xtask soak` sets it.
pub const VARIABLE: &str = "CROSSDOCK_FAULTS";

/// Whether all occurrences are asked for.
pub fn all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// The first occurrences, the last one, and some between: what happens between is most often what happened before, in another batch.
/// All of them where that is asked for.
pub fn chosen(occurrences: u64, first: u64, between: u64) -> BTreeSet<u64> {
    if all() { (1..=occurrences).collect() } else { sample(occurrences, first, between) }
}

fn sample(occurrences: u64, first: u64, between: u64) -> BTreeSet<u64> {
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
        assert!(sample(0, 3, 2).is_empty());
        assert_eq!(sample(2, 3, 2), BTreeSet::from([1, 2]));
        assert_eq!(sample(100, 3, 2), BTreeSet::from([1, 2, 3, 4, 54, 100]));
    }
}
