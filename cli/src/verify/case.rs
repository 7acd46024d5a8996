//! Cases and their outcomes.

use std::fmt;

use crossdock::api::Device;
use serde_json::{Value, json};

use super::context::CaseContext;
pub use super::verdict::{
    Check, Failed, SkipKind, Skipped, Stop, failed, missing_sample, not_offered, require_input, skipped,
};

/// One rule, and the check of it.
pub struct Case {
    /// The name in the form `group.name`. It does not change between releases.
    pub name: &'static str,
    /// The rule, in one sentence.
    pub rule: &'static str,
    /// The names in `crossdock.h` that document the rule.
    pub spec_ref: &'static str,
    /// The cases that this case depends on. If one of them fails, or is skipped because of a
    /// dependency, this case is skipped.
    pub depends_on: &'static [&'static str],
    /// Whether the case runs once per device.
    pub on_devices: bool,
    pub check: fn(&CaseContext) -> Check,
}

/// A case to run. If the case runs once per device, `device` is the device of this run.
#[derive(Clone, Copy)]
pub struct Run {
    pub case: &'static Case,
    pub device: Option<Device>,
    pub seed: u64,
    /// Whether the case must run alone, because effects of other cases could be attributed to the
    /// plugin.
    pub is_exclusive: bool,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(Failed),
    /// The name of the signal that ended the process.
    Crashed(String),
    /// The code with which the process exited before the case ended.
    Exited(i32),
    TimedOut,
    Skipped(Skipped),
}

impl Outcome {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Crashed(_) => "crashed",
            Self::Exited(_) => "exited",
            Self::TimedOut => "timed out",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Whether the case neither passed nor was skipped.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// The explanation that follows the name in reports; empty for `Passed`.
    pub fn details(&self) -> String {
        match self {
            Self::Passed => String::new(),
            Self::Failed(Failed { place, expected, got }) => {
                format!("{place}: expected {expected}; got {got}")
            }
            Self::Crashed(signal) => format!("ended by {signal}"),
            Self::Exited(code) => format!("the plugin ended the process with code {code}"),
            Self::TimedOut => "the time limit was exceeded".into(),
            Self::Skipped(skipped) => skipped.reason.clone(),
        }
    }

    /// The outcome of a check that returned.
    pub fn from_check(check: Check) -> Self {
        match check {
            Ok(()) => Self::Passed,
            Err(Stop::Failed(failed)) => Self::Failed(failed),
            Err(Stop::Skipped(skipped)) => Self::Skipped(skipped),
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Failed(Failed { place, expected, got }) => {
                json!({ "outcome": self.name(), "place": place, "expected": expected, "got": got })
            }
            Self::Crashed(signal) => json!({ "outcome": self.name(), "signal": signal }),
            Self::Exited(code) => json!({ "outcome": self.name(), "code": code }),
            Self::Skipped(Skipped { kind, reason }) => {
                json!({ "outcome": self.name(), "reason": reason, "lack": kind.id() })
            }
            Self::Passed | Self::TimedOut => json!({ "outcome": self.name() }),
        }
    }

    /// Reads a value that [`Outcome::to_json`] wrote. Only outcomes that a case's process reports
    /// itself are supported.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_string());
        Some(match value.get("outcome")?.as_str()? {
            "passed" => Self::Passed,
            "failed" => {
                Self::Failed(Failed { place: text("place")?, expected: text("expected")?, got: text("got")? })
            }
            "skipped" => {
                let id = text("lack")?;
                let kind = SkipKind::ALL.into_iter().find(|kind| kind.id() == id)?;
                Self::Skipped(Skipped { kind, reason: text("reason")? })
            }
            _ => return None,
        })
    }
}

impl Run {
    /// Whether two runs have the same case and the same device. Their seeds may differ.
    pub fn is_same(&self, other: &Self) -> bool {
        self.case.name == other.case.name && self.device == other.device
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.case.name)?;
        self.device.map_or(Ok(()), |device| write!(f, " on {device}"))
    }
}

/// Returns whether `name` matches `pattern`. A pattern without stars matches if `name` contains it.
/// Otherwise the pattern must match the whole name, and each star matches any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name.contains(pattern) };
    let Some(mut remaining) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return remaining.ends_with(part);
        }
        match remaining.find(part) {
            Some(at) => remaining = &remaining[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_pattern_matches_a_name_that_contains_it_or_fits_its_wildcards() {
        for pattern in
            ["", "importer.", "values", "*values", "importer.*", "imp*val*", "*", "importer.values"]
        {
            assert!(matches(pattern, "importer.values"), "{pattern}");
        }
        for pattern in ["exporter", "*value", "values*x", "mporter.*", "*end*values"] {
            assert!(!matches(pattern, "importer.values"), "{pattern}");
        }
    }

    #[test]
    fn outcome_round_trips_through_json() {
        let failed = Failed { place: "a".into(), expected: "b\"\n".into(), got: "ö".into() };
        let skipped = SkipKind::ALL.map(|kind| Outcome::Skipped(Skipped { kind, reason: "why".into() }));
        for outcome in [Outcome::Passed, Outcome::Failed(failed)].into_iter().chain(skipped) {
            assert_eq!(Outcome::from_json(&outcome.to_json()), Some(outcome));
        }
        assert_eq!(Outcome::from_json(&Outcome::Crashed("SIGSEGV".into()).to_json()), None);
    }
}
