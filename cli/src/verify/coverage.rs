//! What of the plugin ran: each case's process notes it and tells it with its outcome, and the command puts it together. So a run in
//! which something that the plugin offers was never called says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock::api::Format;
use serde_json::{Value, json};

use super::verdict::{Check, not_given};

/// Something that a plugin offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// "read", "write", "decode".
    verb: String,
    /// The format's name, or the encoding's id.
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

    pub fn words(&self) -> String {
        format!("{} '{}'", self.verb, self.name)
    }
}

/// What one process has noted, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// What the plugin says that it has, and what to give so that it is run.
    offered: BTreeMap<Part, String>,
    exercised: BTreeSet<Part>,
    /// A function that works on data was called, whatever it answered.
    called: bool,
    /// The case took numbers from the seed: another one is another run.
    pub seeded: bool,
}

static OWN: Mutex<Coverage> = Mutex::new(Coverage {
    offered: BTreeMap::new(),
    exercised: BTreeSet::new(),
    called: false,
    seeded: false,
});

fn own() -> MutexGuard<'static, Coverage> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes what the plugin says that it has.
pub fn offered(read: &[Format], written: &[Format], ids: &[String]) {
    let sample = |format: &Format| match format.bytes {
        true => format!("a file of the format: --sample FILE{}", ending(format)),
        false => "nothing: only capsules of Arrow's and DLPack's are made".into(),
    };
    let mut own = own();
    own.offered.extend(read.iter().map(|format| (Part::read(&format.name), sample(format))));
    let written = written.iter().map(|format| {
        (Part::write(&format.name), "a plan that takes columns of some type that the suite makes".into())
    });
    own.offered.extend(written);
    own.offered.extend(ids.iter().map(|id| {
        let give = "an encoded array with such a node: --sample FILE.cdenc (`crossdock encoded` makes one)";
        (Part::decode(id), give.into())
    }));
}

fn ending(format: &Format) -> &str {
    format.endings.first().map_or("", String::as_str)
}

/// Notes that this gave what it is to give.
pub fn exercised(part: Part) {
    own().exercised.insert(part);
}

/// Notes that a function that works on data was called.
pub fn called() {
    own().called = true;
}

/// Notes that numbers were taken from the seed.
pub fn seeded() {
    own().seeded = true;
}

/// What was noted so far.
pub fn noted() -> Coverage {
    own().clone()
}

/// Cases about what the plugin says: they pass without data.
const ABOUT_ANSWERS: [&str; 6] =
    ["entry.", "interfaces.", "errors.", "structs.", "encoding.unknown_id", "encoding.lying_nodes"];

/// A case that ended well, and in which nothing of the plugin's worked on data, has not seen it keep the rule.
pub fn something_ran(case: &str) -> Check {
    match own().called || ABOUT_ANSWERS.iter().any(|about| case.starts_with(about)) {
        true => Ok(()),
        false => Err(not_given("the case found nothing that the plugin could do (--sample FILE)")),
    }
}

impl Coverage {
    pub fn join(&mut self, other: Self) {
        self.offered.extend(other.offered);
        self.exercised.extend(other.exercised);
        self.called |= other.called;
        self.seeded |= other.seeded;
    }

    /// What is offered and never gave anything, and what to give.
    pub fn not_exercised(&self) -> Vec<(&Part, &str)> {
        let left = self.offered.iter().filter(|(part, _)| !self.exercised.contains(part));
        left.map(|(part, give)| (part, give.as_str())).collect()
    }

    pub fn to_json(&self) -> Value {
        let part = |part: &Part| json!([part.verb, part.name]);
        let offered = |(own, give): (&Part, &String)| json!([part(own), give]);
        json!({
            "offered": self.offered.iter().map(offered).collect::<Vec<_>>(),
            "exercised": self.exercised.iter().map(part).collect::<Vec<_>>(),
            "called": self.called,
            "seeded": self.seeded,
        })
    }

    /// As [`Coverage::to_json`] has it; what is not so is nothing, for the process may have been the plugin's.
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
    fn what_is_offered_and_gave_nothing_is_left() {
        let give = |part: Part| (part, "a file".to_string());
        let offered = [Part::read("a"), Part::write("a"), Part::decode("b")].map(give).into();
        let mut all = Coverage { offered, ..Coverage::default() };
        let exercised = [Part::write("a"), Part::decode("c")].into();
        let other = Coverage { exercised, called: true, ..Coverage::default() };
        all.join(Coverage::from_json(&other.to_json()));
        let left: Vec<_> = all.not_exercised().into_iter().map(|(part, _)| part.words()).collect();
        assert_eq!(left, ["decode 'b'", "read 'a'"]);
        assert_eq!(Coverage::from_json(&all.to_json()), all);
        assert_eq!(Coverage::from_json(&json!(3)), Coverage::default());
    }
}
