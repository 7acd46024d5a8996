//! Settings of isolated plugins, which run in separate processes.

use std::path::PathBuf;
use std::time::Duration;

use crossdock_isolation::{Deadlines, Program};

use crate::hash::Sha256;

/// Which plugins run in separate processes, and how.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// The isolated plugins.
    pub which: Which,
    /// The program of the plugins' processes. The default is the program of
    /// [`serve_with`](crossdock_isolation::serve_with), or `crossdock` beside this process's
    /// executable.
    pub program: Option<Program>,
    /// The maximum duration of a call, and the maximum time without messages during a call. If a
    /// call exceeds a deadline, the call fails and the process is ended. `None`: no deadline.
    pub deadlines: Deadlines,
    /// The control group (Linux, version 2) in which each process gets its own group with limits.
    /// The control group belongs to this user and contains no processes itself. `None`: the
    /// processes stay in the host's group.
    pub cgroup: Option<PathBuf>,
}

/// Selects the isolated plugins. Linked-in plugins are never isolated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// No plugin is isolated.
    #[default]
    None,
    /// The plugins with these names are isolated.
    Named(Vec<String>),
    /// All plugins are isolated, except files with these hashes.
    AllBut(Vec<Sha256>),
    /// All plugins are isolated.
    All,
}

impl Default for Isolation {
    /// No plugin is isolated. The deadlines are one minute of silence and one hour for a call.
    fn default() -> Self {
        let (silence, call) = (Some(Duration::from_secs(60)), Some(Duration::from_secs(60 * 60)));
        Self { which: Which::None, program: None, deadlines: Deadlines { silence, call }, cgroup: None }
    }
}

impl Which {
    /// The plugins with these names; `*` means all.
    pub fn from_names(names: Vec<String>) -> Self {
        match names {
            names if names.iter().any(|name| name == "*") => Self::All,
            names if names.is_empty() => Self::None,
            names => Self::Named(names),
        }
    }

    /// Returns the union of two sets of plugins. No variant can represent the union of
    /// [`Self::AllBut`] and [`Self::Named`], so this union becomes [`Self::All`].
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, which) | (which, Self::None) => which,
            (Self::Named(a), Self::Named(b)) => Self::Named(a.into_iter().chain(b).collect()),
            (Self::AllBut(a), Self::AllBut(b)) => {
                Self::AllBut(a.into_iter().filter(|hash| b.contains(hash)).collect())
            }
            _ => Self::All,
        }
    }

    /// Whether a plugin with this name is isolated. `sha256` is the hash of the plugin's file, if
    /// known.
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
    fn union_isolates_all_plugins_that_either_policy_isolates() {
        let hash = |digit: &str| digit.repeat(64).parse::<Sha256>().unwrap();
        let (a, b, c) = (hash("a"), hash("b"), hash("c"));
        let names = |names: &[&str]| Which::from_names(names.iter().map(ToString::to_string).collect());
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
            let both = one.clone().union(other.clone());
            for (name, file) in ["x", "y", "z"].iter().flat_map(|name| files.map(|file| (name, file))) {
                let either = one.includes(name, file.as_ref()) || other.includes(name, file.as_ref());
                let is_exact = !matches!(
                    (one, other),
                    (Which::Named(_), Which::AllBut(_)) | (Which::AllBut(_), Which::Named(_))
                );
                // `union` returns `All` for names and exceptions, so plugins of neither set are
                // isolated too.
                let expected = either || !is_exact;
                assert_eq!(both.includes(name, file.as_ref()), expected, "{one:?} {other:?} {name} {file:?}");
            }
        }
        assert_eq!(all[4].clone().union(all[5].clone()), Which::AllBut(vec![b]));
        assert_eq!(names(&[]), Which::None);
    }
}
