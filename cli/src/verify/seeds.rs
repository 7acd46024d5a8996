//! Chooses the seeds of a run: the seeds that the user asks for, or as many seeds as the time limit
//! allows.

use std::time::Duration;

/// The number of seeds that a run tries by default.
const MAX_DEFAULT_SEEDS: u64 = 8;
/// The time limit of a run without `--seeds`. If the first seed takes more than half of this time,
/// the limit is twice the time of the first seed.
const MIN_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The seeds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    first: u64,
    n: u64,
    /// Whether the time limits the number of seeds.
    is_time_limited: bool,
}

impl Seeds {
    /// Makes the `n` seeds that start with `first`. If `first` and `n` are `None`, the number of
    /// seeds is limited by time.
    pub fn new(first: Option<u64>, n: Option<u64>) -> Self {
        let is_time_limited = first.is_none() && n.is_none();
        let n = n.unwrap_or(if is_time_limited { MAX_DEFAULT_SEEDS } else { 1 });
        Self { first: first.unwrap_or(1), n, is_time_limited }
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    /// The seed of the next round; `None` if no round follows. The first round took the time
    /// `first`, and all `n_done` completed rounds together took the time `all`.
    pub fn next(&self, n_done: u64, first: Duration, all: Duration) -> Option<u64> {
        // The rounds after the first one run fewer cases and take about the same time each.
        let next = all.saturating_sub(first).checked_div(n_done.saturating_sub(1) as u32).unwrap_or(first);
        let has_time = !self.is_time_limited || all + next <= MIN_TIME_LIMIT.max(2 * first);
        (n_done < self.n && has_time).then(|| self.first.wrapping_add(n_done))
    }
}

/// "seed 1", "seeds 1 to 3".
pub fn describe(seeds: &[u64]) -> String {
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
    fn runs_the_requested_seeds_or_as_many_as_fit_into_the_time() {
        let default = Seeds::new(None, None);
        assert_eq!(rounds(default, 1), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(rounds(default, 4), [1, 2]);
        assert_eq!(rounds(default, 60), [1, 2]);
        assert_eq!(rounds(Seeds::new(Some(7), None), 1), [7]);
        assert_eq!(rounds(Seeds::new(Some(7), Some(3)), 60), [7, 8, 9]);
        assert_eq!(rounds(Seeds::new(None, Some(1)), 1), [1]);
        assert_eq!(describe(&[1, 2, 3]), "seeds 1 to 3");
    }
}
