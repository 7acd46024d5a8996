//! Results of checks.

use std::fmt;

/// A value, or the reason why the case ends.
pub type Check<T = ()> = Result<T, Stop>;

/// The reason why a case ends early.
#[derive(Debug)]
pub enum Stop {
    Failed(Failed),
    Skipped(Skipped),
}

/// Why a case was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipKind {
    /// The plugin does not offer the feature that the rule is about.
    NotOffered,
    /// The plugin offers the feature, but the suite has no input for it.
    NoSample,
    /// A case on which this case depends failed, or was itself skipped because of a dependency.
    Dependency,
    /// This machine lacks something, such as a device.
    Machine,
}

impl SkipKind {
    pub const ALL: [Self; 4] = [Self::NotOffered, Self::NoSample, Self::Dependency, Self::Machine];

    /// The name in JSON reports, which stays the same from release to release.
    pub fn id(self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::NoSample => "no_sample",
            Self::Dependency => "ground",
            Self::Machine => "machine",
        }
    }

    /// The phrase that follows the number of cases in text reports.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::NotOffered => "not offered by the plugin",
            Self::NoSample => "without a sample",
            Self::Dependency => "after a failure",
            Self::Machine => "not possible on this machine",
        }
    }
}

/// A case that was not tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub kind: SkipKind,
    pub reason: String,
}

/// How the plugin broke the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The context of the violation: the format, the column or the call.
    pub place: String,
    pub expected: String,
    pub got: String,
}

/// Ends a case whose rule the plugin broke.
pub fn failed(place: impl fmt::Display, expected: impl fmt::Display, got: impl fmt::Display) -> Stop {
    let (place, expected, got) = (place.to_string(), expected.to_string(), got.to_string());
    Stop::Failed(Failed { place, expected, got })
}

/// Ends a case that this machine cannot run.
pub fn skipped(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { kind: SkipKind::Machine, reason: reason.to_string() })
}

/// Ends a case about something that the plugin does not offer.
pub fn not_offered(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { kind: SkipKind::NotOffered, reason: reason.to_string() })
}

/// Ends a case that needs a sample.
pub fn missing_sample(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(Skipped { kind: SkipKind::NoSample, reason: reason.to_string() })
}

/// Skips the case unless it had at least one input that the plugin `verb` ("reads", "decodes"),
/// because without such an input the case has not checked the rule.
pub fn require_input(has_any: bool, verb: &str) -> Check {
    if has_any {
        Ok(())
    } else {
        Err(missing_sample(format!("no input that the plugin {verb} (--sample FILE)")))
    }
}
