//! Records which parts of the plugin ran, so that the report can list the offered parts that no
//! case exercised. The process of each case sends its record with the outcome of the case, and the
//! command joins the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock::api::Format;
use serde_json::{Value, json};

use super::verdict::{Check, missing_sample};

/// Something that a plugin offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// "read", "write", "decode", "encode", "open".
    verb: String,
    /// The format's name, the encoding's id, or the URI scheme.
    name: String,
}

impl Part {
    pub fn read(format: &str) -> Self {
        Self { verb: "read".into(), name: format.into() }
    }

    pub fn write(format: &str) -> Self {
        Self { verb: "write".into(), name: format.into() }
    }

    pub fn decode(id: &str) -> Self {
        Self { verb: "decode".into(), name: id.into() }
    }

    pub fn encode(id: &str) -> Self {
        Self { verb: "encode".into(), name: id.into() }
    }

    pub fn open(scheme: &str) -> Self {
        Self { verb: "open".into(), name: scheme.into() }
    }

    /// The name in reports: "read 'csv'".
    pub fn label(&self) -> String {
        format!("{} '{}'", self.verb, self.name)
    }
}

/// The record of one process, or the joined record of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The parts that the plugin offers, each with the input that the suite needs to exercise it.
    offered: BTreeMap<Part, String>,
    exercised: BTreeSet<Part>,
    /// Whether a function that works on data was called, even if the call failed.
    called: bool,
    /// Whether the case used random numbers, so that its result may depend on the seed.
    pub seeded: bool,
}

static RECORD: Mutex<Coverage> = Mutex::new(Coverage {
    offered: BTreeMap::new(),
    exercised: BTreeSet::new(),
    called: false,
    seeded: false,
});

fn record() -> MutexGuard<'static, Coverage> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what the plugin offers.
pub fn record_offer(
    read: &[Format],
    written: &[Format],
    ids: &[String],
    encoded: &[String],
    schemes: &[String],
) {
    let sample = |format: &Format| match format.bytes {
        true => format!("a file of the format: --sample FILE{}", extension(format)),
        false => "an input that the suite cannot make: it makes only Arrow and DLPack capsules".into(),
    };
    let mut record = record();
    record.offered.extend(read.iter().map(|format| (Part::read(&format.name), sample(format))));
    let written = written.iter().map(|format| {
        (Part::write(&format.name), "a plan that accepts columns of a type that the suite makes".into())
    });
    record.offered.extend(written);
    record.offered.extend(ids.iter().map(|id| {
        let need = "an encoded array with such a node: --sample FILE.cdenc (`crossdock encoded` makes one)";
        (Part::decode(id), need.into())
    }));
    record.offered.extend(
        encoded
            .iter()
            .map(|id| (Part::encode(id), "an encoding of columns of a type that the suite makes".into())),
    );
    record.offered.extend(schemes.iter().map(|scheme| {
        (Part::open(scheme), format!("a URI whose content does not change: --sample {scheme}://…"))
    }));
}

fn extension(format: &Format) -> &str {
    format.extensions.first().map_or("", String::as_str)
}

/// Records that a part returned data.
pub fn record_exercised(part: Part) {
    record().exercised.insert(part);
}

/// Records that a function that works on data was called.
pub fn record_data_call() {
    record().called = true;
}

/// Records that random numbers were used.
pub fn record_seed_use() {
    record().seeded = true;
}

/// A copy of this process's record.
pub fn recorded() -> Coverage {
    record().clone()
}

/// Prefixes of the names of the cases that check their rule without data.
const WITHOUT_DATA: [&str; 7] = [
    "entry.",
    "interfaces.",
    "errors.",
    "structs.",
    "opener.schemes",
    "encoding.unknown_id",
    "encoding.malformed_nodes",
];

/// Skips a case if the plugin never worked on data, because the case would pass without having
/// checked its rule.
pub fn require_data_call(case: &str) -> Check {
    match record().called || WITHOUT_DATA.iter().any(|prefix| case.starts_with(prefix)) {
        true => Ok(()),
        false => Err(missing_sample("the case had no input that the plugin could work on (--sample FILE)")),
    }
}

impl Coverage {
    pub fn join(&mut self, other: Self) {
        self.offered.extend(other.offered);
        self.exercised.extend(other.exercised);
        self.called |= other.called;
        self.seeded |= other.seeded;
    }

    /// The offered parts that were never exercised, each with the input that it needs.
    pub fn not_exercised(&self) -> Vec<(&Part, &str)> {
        let parts = self.offered.iter().filter(|(part, _)| !self.exercised.contains(part));
        parts.map(|(part, need)| (part, need.as_str())).collect()
    }

    pub fn to_json(&self) -> Value {
        let part = |part: &Part| json!([part.verb, part.name]);
        let offered = |(offer, need): (&Part, &String)| json!([part(offer), need]);
        json!({
            "offered": self.offered.iter().map(offered).collect::<Vec<_>>(),
            "exercised": self.exercised.iter().map(part).collect::<Vec<_>>(),
            "called": self.called,
            "seeded": self.seeded,
        })
    }

    /// Reads a value that [`Coverage::to_json`] wrote. Any other value is ignored, because the
    /// plugin may have written it to the socket.
    pub fn from_json(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let part = |value: &Value| Some(Part { verb: text(value.get(0)?)?, name: text(value.get(1)?)? });
        let list = |key: &str| value.get(key).and_then(Value::as_array).into_iter().flatten();
        let is = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
        Self {
            offered: list("offered")
                .filter_map(|one| Some((part(one.get(0)?)?, text(one.get(1)?)?)))
                .collect(),
            exercised: list("exercised").filter_map(part).collect(),
            called: is("called"),
            seeded: is("seeded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_exercised_returns_offered_parts_that_no_case_ran() {
        let need = |part: Part| (part, "a file".to_string());
        let offered = [Part::read("a"), Part::write("a"), Part::decode("b")].map(need).into();
        let mut all = Coverage { offered, ..Coverage::default() };
        let exercised = [Part::write("a"), Part::decode("c")].into();
        let other = Coverage { exercised, called: true, ..Coverage::default() };
        all.join(Coverage::from_json(&other.to_json()));
        let labels: Vec<_> = all.not_exercised().into_iter().map(|(part, _)| part.label()).collect();
        assert_eq!(labels, ["decode 'b'", "read 'a'"]);
        assert_eq!(Coverage::from_json(&all.to_json()), all);
        assert_eq!(Coverage::from_json(&json!(3)), Coverage::default());
    }
}
