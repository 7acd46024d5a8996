//! What a check says.

use std::fmt;

/// Nothing to say, or why not.
pub type Check<T = ()> = Result<T, Stop>;

/// Why a case ends early.
#[derive(Debug)]
pub enum Stop {
    Failed(Failed),
    Skipped(String),
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

/// A case that cannot be tried.
pub fn skipped(reason: impl fmt::Display) -> Stop {
    Stop::Skipped(reason.to_string())
}

/// A case in which nothing of the plugin's ran has not seen it keep the rule: there was nothing that it does so with.
pub fn ran(has_any: bool, does: &str) -> Check {
    if has_any { Ok(()) } else { Err(skipped(format!("nothing that the plugin {does} (--sample FILE)"))) }
}
