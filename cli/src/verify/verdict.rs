//! What a check says.

use std::fmt;

/// Nothing to say, or why not.
pub type Check<T = ()> = Result<T, Stop>;

/// Why a case ends early.
#[derive(Debug)]
pub enum Stop {
    Failed(Failed),
    Skipped(Skipped),
}

/// What a case that was not tried lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The plugin has nothing that the rule is about.
    Offer,
    /// The plugin has, and the suite was given nothing to run it with.
    Sample,
    /// What the case counts on does not hold.
    Ground,
    /// Something of this machine's.
    Machine,
}

impl Lack {
    pub const ALL: [Self; 4] = [Self::Offer, Self::Sample, Self::Ground, Self::Machine];

    /// For programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Offer => "not_offered",
            Self::Sample => "no_sample",
            Self::Ground => "ground",
            Self::Machine => "machine",
        }
    }

    /// For people, after a number of cases.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Offer => "about what the plugin does not have",
            Self::Sample => "for want of samples",
            Self::Ground => "after a failure",
            Self::Machine => "not possible here",
        }
    }
}

/// Why a case was not tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub lack: Lack,
    pub reason: String,
}

/// How the plugin broke the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where: the format, the column, the call.
    pub place: String,
    pub expected: String,
    pub got: String,
}

/// A case that broke its rule.
pub fn failed(place: impl fmt::Display, expected: impl fmt::Display, got: impl fmt::Display) -> Stop {
    let (place, expected, got) = (place.to_string(), expected.to_string(), got.to_string());
    Stop::Failed(Failed { place, expected, got })
}

/// A case that cannot be tried here.
pub fn skipped(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { lack: Lack::Machine, reason: reason.to_string() })
}

/// A case about what the plugin does not have.
pub fn not_offered(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { lack: Lack::Offer, reason: reason.to_string() })
}

/// A case that has nothing to run the plugin with.
pub fn not_given(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { lack: Lack::Sample, reason: reason.to_string() })
}

/// A case in which nothing of the plugin's ran has not seen it keep the rule: there was nothing that it does so with.
pub fn ran(has_any: bool, does: &str) -> Check {
    if has_any { Ok(()) } else { Err(not_given(format!("nothing that the plugin {does} (--sample FILE)"))) }
}
