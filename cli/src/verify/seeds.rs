//! With which seeds the cases run: one that was asked for, or as many as there is time for.

use std::time::Duration;

/// How many seeds a run tries where nobody says.
const MOST: u64 = 8;
/// Short runs go on for as long, and others until they took twice as long as with the first seed.
const MOST_TIME: Duration = Duration::from_secs(10);

/// The seeds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    n: u64,
    /// Whether fewer will do, where they take long.
    by_time: bool,
}

impl Seeds {
    /// Seed `first` and the next ones, as many as asked for; without a word of either, as many as there is time for.
    pub fn new(first: Option<u64>, n: Option<u64>) -> Self {
        let by_time = first.is_none() && n.is_none();
        let n = n.unwrap_or(if by_time { MOST } else { 1 });
        Self { first: first.unwrap_or(1), n, by_time }
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    /// The seed of the next round, if there is one: `done` are done, the first of which took `first`, all of them `all`.
    pub fn next(&self, done: u64, first: Duration, all: Duration) -> Option<u64> {
        // The rounds after the first one run fewer cases, about as long each.
        let rest = all.saturating_sub(first).checked_div(done.saturating_sub(1) as u32).unwrap_or(first);
        let has_time = !self.by_time || all + rest <= MOST_TIME.max(2 * first);
        (done < self.n && has_time).then(|| self.first.wrapping_add(done))
    }
}

/// "seed 1", "seeds 1 to 3".
pub fn words(seeds: &[u64]) -> String {
    match seeds {
        [] => "no seed".into(),
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first} to {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seeds: Seeds, seconds_each: u64) -> Vec<u64> {
        let each = Duration::from_secs(seconds_each);
        let mut all = vec![seeds.first()];
        while let Some(seed) = seeds.next(all.len() as u64, each, each * all.len() as u32) {
            all.push(seed);
        }
        all
    }

    #[test]
    fn as_many_seeds_as_there_is_time_for_or_as_were_asked_for() {
        let free = Seeds::new(None, None);
        assert_eq!(rounds(free, 1), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(rounds(free, 4), [1, 2]);
        assert_eq!(rounds(free, 60), [1, 2]);
        assert_eq!(rounds(Seeds::new(Some(7), None), 1), [7]);
        assert_eq!(rounds(Seeds::new(Some(7), Some(3)), 60), [7, 8, 9]);
        assert_eq!(rounds(Seeds::new(None, Some(1)), 1), [1]);
        assert_eq!(words(&[1, 2, 3]), "seeds 1 to 3");
    }
}
