//! The tiers of tests, and the sample of the short tier.

use crate::cargo::Workspace;
use crate::fnv::mixed;
use std::process::Command;

/// The environment variable with the number of the sample. If it is not set, every test runs all
/// its checks.
const VARIABLE: &str = "CROSSDOCK_TEST_SAMPLE";

/// A tier of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The tests that a change is likely to break, and a sample of repetitive tests.
    Short(Sample),
    /// All tests.
    All,
}

/// A number that selects the tests of the short tier. A number always selects the same tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(pub u32);

impl Sample {
    /// The number is taken from the hash of the commit, so that the samples of several commits
    /// together contain all tests. It is 0 outside of a repository.
    pub fn of_commit(workspace: &Workspace) -> Self {
        let mut git = Command::new("git");
        git.current_dir(&workspace.root).args(["rev-parse", "--verify", "--quiet", "HEAD"]);
        let output = git.output().ok().filter(|output| output.status.success());
        let hash = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        Self(hash.and_then(|hash| number(&hash)).unwrap_or(0))
    }

    /// The index of one of `len` alternatives of the kind `what`. The selections for different
    /// kinds are independent of each other.
    pub fn index(self, what: &str, len: usize) -> usize {
        (mixed(u64::from(self.0), what.as_bytes()) >> 32) as usize % len.max(1)
    }
}

/// The number that the first eight hexadecimal digits of a hash represent.
fn number(hash: &str) -> Option<u32> {
    u32::from_str_radix(hash.get(..8)?, 16).ok()
}

impl Tier {
    /// Selects the elements of `all` that run: one element in the short tier, otherwise all
    /// elements.
    pub fn one_of<'a, T>(&self, what: &str, all: &'a [T]) -> &'a [T] {
        match self {
            Self::All => all,
            Self::Short(sample) => {
                let i = sample.index(what, all.len());
                all.get(i..=i).unwrap_or(all)
            }
        }
    }

    /// This tier, but with a sample of repetitive tests.
    pub fn sampled(self, workspace: &Workspace) -> Self {
        if self.is_short() { self } else { Self::Short(Sample::of_commit(workspace)) }
    }

    /// Sets the environment variable with which tests select their sample.
    pub fn tell(self, command: &mut Command) {
        match self {
            Self::Short(Sample(number)) => command.env(VARIABLE, number.to_string()),
            Self::All => command.env_remove(VARIABLE),
        };
    }

    /// The arguments of `cargo xtask test` that select this tier and sample.
    pub fn arguments(self) -> String {
        match self {
            Self::Short(Sample(number)) => format!("--sample {number}"),
            Self::All => "--all".to_owned(),
        }
    }

    /// Whether this is the short tier.
    pub fn is_short(self) -> bool {
        matches!(self, Self::Short(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_number_is_the_first_eight_digits_of_the_hash() {
        assert_eq!(number("00000010abcdef"), Some(16));
        assert_eq!(number("0000001"), None);
        assert_eq!(number("zzzzzzzzz"), None);
    }

    #[test]
    fn sample_numbers_select_every_alternative_independently_for_each_kind() {
        for len in 1..=8 {
            let mut seen: Vec<_> = (0..60).map(|number| Sample(number).index("machine", len)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
        assert!((0..60).any(|n| Sample(n).index("a", 8) != Sample(n).index("b", 8)));
    }

    #[test]
    fn short_tier_selects_one_element() {
        assert_eq!(Tier::All.one_of("x", &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(Tier::Short(Sample(5)).one_of("x", &[1, 2, 3]).len(), 1);
        assert_eq!(Tier::Short(Sample(5)).one_of::<u8>("x", &[]), [0u8; 0]);
    }
}
