//! Which plugins run in processes of their own, and how.

use std::path::PathBuf;
use std::time::Duration;

use crossdock_isolation::{Deadlines, Program};

use crate::hash::Sha256;

/// Which plugins run in processes of their own, and how.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Which.
    pub which: Which,
    /// What runs them; otherwise what [`serve_with`](crossdock_isolation::serve_with) says, or `crossdock` beside this process's executable.
    pub program: Option<Program>,
    /// A call in which a process gives no sign of life for so long, or that takes so long in all, is an error, and the process is
    /// ended. `None`: it is waited for.
    pub deadlines: Deadlines,
    /// The control group (Linux, version 2) below which each process has one of its own, which limits it; it is one of this user's,
    /// without processes of its own. `None`: the processes stay in the host's.
    pub cgroup: Option<PathBuf>,
}

/// Which plugins are isolated. What is linked in is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// None.
    #[default]
    None,
    /// Those of these names.
    Named(Vec<String>),
    /// Every one but those whose files have these hashes.
    AllBut(Vec<Sha256>),
    /// Every one.
    All,
}

impl Default for Isolation {
    /// None is isolated; one that were would have a minute to give a sign of life, and an hour for a call.
    fn default() -> Self {
        let (silence, call) = (Some(Duration::from_secs(60)), Some(Duration::from_secs(60 * 60)));
        Self { which: Which::None, program: None, deadlines: Deadlines { silence, call }, cgroup: None }
    }
}

impl Which {
    /// Those of these names; `*` is every one.
    pub fn of(names: Vec<String>) -> Self {
        match names {
            names if names.iter().any(|name| name == "*") => Self::All,
            names if names.is_empty() => Self::None,
            names => Self::Named(names),
        }
    }

    /// Those of either; where one has exceptions and the other names, every one.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, which) | (which, Self::None) => which,
            (Self::Named(a), Self::Named(b)) => Self::Named(a.into_iter().chain(b).collect()),
            (Self::AllBut(a), Self::AllBut(b)) => {
                Self::AllBut(a.into_iter().filter(|hash| b.contains(hash)).collect())
            }
            _ => Self::All,
        }
    }

    /// Whether the plugin of this name is, whose file has this hash where that is known.
    pub fn includes(&self, name: &str, sha256: Option<&Sha256>) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.iter().any(|known| known == name),
            Self::AllBut(hashes) => !sha256.is_some_and(|sha256| hashes.contains(sha256)),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_choices_together_isolate_what_either_does() {
        let hash = |digit: &str| digit.repeat(64).parse::<Sha256>().unwrap();
        let (a, b, c) = (hash("a"), hash("b"), hash("c"));
        let names = |names: &[&str]| Which::of(names.iter().map(ToString::to_string).collect());
        let all = [
            Which::None,
            names(&["x"]),
            names(&["x", "y"]),
            names(&["*"]),
            Which::AllBut(vec![a, b]),
            Which::AllBut(vec![b, c]),
        ];
        let files = [None, Some(a), Some(b), Some(c)];
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            let both = one.clone().and(other.clone());
            for (name, file) in ["x", "y", "z"].iter().flat_map(|name| files.map(|file| (name, file))) {
                let either = one.includes(name, file.as_ref()) || other.includes(name, file.as_ref());
                let is_exact = !matches!(
                    (one, other),
                    (Which::Named(_), Which::AllBut(_)) | (Which::AllBut(_), Which::Named(_))
                );
                // Names beside exceptions are every one: more than either, and never less.
                let expected = either || !is_exact;
                assert_eq!(both.includes(name, file.as_ref()), expected, "{one:?} {other:?} {name} {file:?}");
            }
        }
        assert_eq!(all[4].clone().and(all[5].clone()), Which::AllBut(vec![b]));
        assert_eq!(names(&[]), Which::None);
    }
}
