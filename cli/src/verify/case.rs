//! What a case is, and what can become of it.

use std::fmt;

use crossdock::api::Device;
use serde_json::{Value, json};

use super::subject::Ground;
pub use super::verdict::{Check, Failed, Lack, Skipped, Stop, failed, not_given, not_offered, ran, skipped};

/// One rule, and what holds a plugin to it.
pub struct Case {
    /// `group.name`, which stays the same from release to release.
    pub name: &'static str,
    /// The rule, in one sentence.
    pub rule: &'static str,
    /// Where it stands.
    pub stands: &'static str,
    /// Cases whose rules it counts on: it is skipped where one of them does not pass.
    pub ground: &'static [&'static str],
    /// Whether what it does has to do with a device.
    pub on_devices: bool,
    pub check: fn(&Ground) -> Check,
}

/// A case to run, on a device where it has to do with one.
#[derive(Clone, Copy)]
pub struct Run {
    pub case: &'static Case,
    pub device: Option<Device>,
    pub seed: u64,
    /// Whether what others do meanwhile would be taken for the plugin's doing: nothing else runs then.
    pub alone: bool,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(Failed),
    /// By which signal its process ended.
    Crashed(String),
    /// With which code its process ended, before the case had.
    Exited(i32),
    TimedOut,
    Skipped(Skipped),
}

impl Outcome {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Crashed(_) => "crashed",
            Self::Exited(_) => "exited",
            Self::TimedOut => "timed out",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Neither passed nor skipped.
    pub fn is_bad(&self) -> bool {
        !matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// What there is to say beyond the word; empty where there is nothing.
    pub fn words(&self) -> String {
        match self {
            Self::Passed => String::new(),
            Self::Failed(Failed { place, expected, got }) => {
                format!("{place}: expected {expected}; got {got}")
            }
            Self::Crashed(signal) => format!("ended by {signal}"),
            Self::Exited(code) => format!("the plugin ended the process with code {code}"),
            Self::TimedOut => "it did not end in time".into(),
            Self::Skipped(skipped) => skipped.reason.clone(),
        }
    }

    /// What a child tells of itself.
    pub fn of(check: Check) -> Self {
        match check {
            Ok(()) => Self::Passed,
            Err(Stop::Failed(failed)) => Self::Failed(failed),
            Err(Stop::Skipped(skipped)) => Self::Skipped(skipped),
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Failed(Failed { place, expected, got }) => {
                json!({ "outcome": self.word(), "place": place, "expected": expected, "got": got })
            }
            Self::Crashed(signal) => json!({ "outcome": self.word(), "signal": signal }),
            Self::Exited(code) => json!({ "outcome": self.word(), "code": code }),
            Self::Skipped(Skipped { lack, reason }) => {
                json!({ "outcome": self.word(), "reason": reason, "lack": lack.word() })
            }
            Self::Passed | Self::TimedOut => json!({ "outcome": self.word() }),
        }
    }

    /// As [`Outcome::to_json`] has it, of those that a child can tell of itself.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_string());
        Some(match value.get("outcome")?.as_str()? {
            "passed" => Self::Passed,
            "failed" => {
                Self::Failed(Failed { place: text("place")?, expected: text("expected")?, got: text("got")? })
            }
            "skipped" => {
                let word = text("lack")?;
                let lack = Lack::ALL.into_iter().find(|lack| lack.word() == word)?;
                Self::Skipped(Skipped { lack, reason: text("reason")? })
            }
            _ => return None,
        })
    }
}

impl Run {
    /// Whether both are the same case on the same device, whatever the seed.
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

/// Whether `name` has `pattern` in it, or is as `pattern` with anything in the places of its stars.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name.contains(pattern) };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_part_of_the_name_or_has_stars() {
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
    fn what_a_child_tells_arrives() {
        let failed = Failed { place: "a".into(), expected: "b\"\n".into(), got: "ö".into() };
        let skipped = Lack::ALL.map(|lack| Outcome::Skipped(Skipped { lack, reason: "why".into() }));
        for outcome in [Outcome::Passed, Outcome::Failed(failed)].into_iter().chain(skipped) {
            assert_eq!(Outcome::from_json(&outcome.to_json()), Some(outcome));
        }
        assert_eq!(Outcome::from_json(&Outcome::Crashed("SIGSEGV".into()).to_json()), None);
    }
}
