//! Lists the mutants, and selects samples.

use crate::fnv::mixed;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Excluded sources: prefixes of their paths, and the reasons. The tests of a crate need not find
/// faults in its excluded sources.
const EXCLUDED: &[(&str, &str)] = &[
    ("benches/", "benchmarks have no tests"),
    ("capi/", "its tests load a library that is built before them"),
    ("cli/src/verify/", "tests/suite runs it on plugins with known bugs, for minutes"),
    ("isolation/", "tests/suite runs isolated plugins in separate processes"),
    ("memory/backend/src/cuda/", "needs a driver; see the step sim-cuda"),
    ("plugins/encodings/src/device/", "needs devices; see tests/suite and the step sim-cuda"),
    ("python/", "its tests are in Python"),
    ("tests/", "tests, and their support"),
    ("xtask/", "tools"),
];

/// Packages whose tests are in another package.
const TESTED_BY: &[(&str, &str)] = &[
    // The package of the kernels has a test program that compares each kernel of the library with
    // its specification.
    ("crossdock-kernel-library", "crossdock-kernels"),
];

/// The package whose tests must find the mutants of `package`.
pub fn tested_by(package: &str) -> &str {
    TESTED_BY.iter().find(|(of, _)| *of == package).map_or(package, |(_, by)| by)
}

/// A fault that can be injected into the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    pub package: String,
    /// The name that cargo-mutants uses, with line and column.
    pub place: String,
    /// The name without line and column, so that edits elsewhere in the file do not change it.
    /// Mutants of a file that would have the same name are numbered.
    pub name: String,
}

/// All mutants.
#[derive(Debug)]
pub struct List {
    /// The mutants that are not excluded.
    mutants: Vec<Mutant>,
    /// The package and place of all mutants, including excluded mutants.
    places: Vec<(String, String)>,
}

impl List {
    /// Parses the output of `cargo mutants --list --json`.
    pub fn read(json: &[u8]) -> Result<Self> {
        let all: Vec<Value> =
            serde_json::from_slice(json).context("cargo mutants --list: not a list in JSON")?;
        let mut mutants = all.iter().map(read_one).collect::<Result<Vec<_>>>()?;
        let places = mutants.iter().map(|mutant| (mutant.package.clone(), mutant.place.clone())).collect();
        mutants.retain(|mutant| !EXCLUDED.iter().any(|(begin, _)| mutant.place.starts_with(begin)));
        number(&mut mutants);
        Ok(Self { mutants, places })
    }

    pub fn has(&self, name: &str) -> bool {
        self.mutants.iter().any(|mutant| mutant.name == name)
    }

    /// The places of all mutants of the package, including excluded mutants, except the mutants in
    /// `these`.
    pub fn others(&self, package: &str, these: &[Mutant]) -> Vec<&str> {
        let these: HashSet<&str> = these.iter().map(|mutant| mutant.place.as_str()).collect();
        let all = self.places.iter().filter(|(of, place)| of == package && !these.contains(place.as_str()));
        all.map(|(_, place)| place.as_str()).collect()
    }

    /// The sorted names of the packages with mutants.
    pub fn packages(&self) -> Vec<String> {
        let mut packages: Vec<_> = self.mutants.iter().map(|mutant| mutant.package.clone()).collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    }

    /// The mutants of these packages whose names contain `text`. An empty list of packages means
    /// all packages.
    pub fn those_of(&self, packages: &[String], text: Option<&str>) -> Result<Vec<Mutant>> {
        let known = self.packages();
        if let Some(unknown) = packages.iter().find(|package| !known.contains(package)) {
            bail!("the package '{unknown}' has no mutants, expected {}", known.join(", "));
        }
        let mut mutants = self.mutants.clone();
        mutants.retain(|mutant| {
            let is_of = packages.is_empty() || packages.contains(&mutant.package);
            is_of && text.is_none_or(|text| mutant.name.contains(text))
        });
        if mutants.is_empty() {
            bail!("no mutant has a name that contains this text");
        }
        Ok(mutants)
    }
}

fn read_one(json: &Value) -> Result<Mutant> {
    let text = |key: &str| {
        json[key]
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("cargo mutants --list: no {key} in {json}"))
    };
    let (package, place, file) = (text("package")?, text("name")?, text("file")?);
    // The name has the form FILE:LINE:COLUMN: WHAT.
    let what = place.strip_prefix(&file).and_then(|rest| rest.splitn(4, ':').nth(3));
    let what =
        what.with_context(|| format!("cargo mutants --list: expected a file and a line in {place}"))?;
    let name = format!("{file}:{what}");
    Ok(Mutant { package, place, name })
}

/// Numbers mutants with the same name.
fn number(mutants: &mut [Mutant]) {
    let mut counts: HashMap<String, (usize, usize)> = HashMap::new();
    for mutant in mutants.iter() {
        counts.entry(mutant.name.clone()).or_default().1 += 1;
    }
    for mutant in mutants {
        if let Some((seen, all)) = counts.get_mut(&mutant.name).filter(|(_, all)| *all > 1) {
            *seen += 1;
            mutant.name += &format!(" ({seen} of {all})");
        }
    }
}

/// A sample of `size` mutants, selected by the seed. The rank of a mutant depends only on the seed
/// and its name. Therefore a change in one file has little effect on the selection in other files.
pub fn sample(mut mutants: Vec<Mutant>, seed: u64, size: usize) -> Vec<Mutant> {
    mutants.sort_by_cached_key(|mutant| (mixed(seed, mutant.name.as_bytes()), mutant.name.clone()));
    mutants.truncate(size);
    mutants
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = r#"[
        {"package": "a", "file": "a/src/x.rs", "name": "a/src/x.rs:7:9: replace f -> bool with true"},
        {"package": "a", "file": "a/src/x.rs", "name": "a/src/x.rs:8:1: replace + with - in <impl A for B>::g"},
        {"package": "a", "file": "a/src/x.rs", "name": "a/src/x.rs:8:5: replace + with - in <impl A for B>::g"},
        {"package": "b", "file": "b/src/x.rs", "name": "b/src/x.rs:1:1: replace | with ^ in h"},
        {"package": "xtask", "file": "xtask/src/x.rs", "name": "xtask/src/x.rs:1:1: replace h with ()"}
    ]"#;

    fn names(mutants: &[Mutant]) -> Vec<&str> {
        mutants.iter().map(|mutant| &*mutant.name).collect()
    }

    #[test]
    fn mutant_names_are_unique_and_contain_no_line_numbers() {
        let list = List::read(LISTED.as_bytes()).unwrap();
        let expected = [
            "a/src/x.rs: replace f -> bool with true",
            "a/src/x.rs: replace + with - in <impl A for B>::g (1 of 2)",
            "a/src/x.rs: replace + with - in <impl A for B>::g (2 of 2)",
            "b/src/x.rs: replace | with ^ in h",
        ];
        assert_eq!(names(&list.mutants), expected);
        assert_eq!(list.packages(), ["a", "b"]);
        assert!(list.has(expected[0]) && !list.has("a/src/x.rs: replace f"));
    }

    #[test]
    fn others_returns_all_other_mutants_of_the_package() {
        let list = List::read(LISTED.as_bytes()).unwrap();
        let these = &list.mutants[1..2];
        let expected = [
            "a/src/x.rs:7:9: replace f -> bool with true",
            "a/src/x.rs:8:5: replace + with - in <impl A for B>::g",
        ];
        assert_eq!(list.others("a", these), expected);
        assert_eq!(list.others("xtask", these), ["xtask/src/x.rs:1:1: replace h with ()"]);
    }

    #[test]
    fn selects_mutants_by_package_and_text_and_rejects_unknown_values() {
        let list = || List::read(LISTED.as_bytes()).unwrap();
        assert_eq!(list().those_of(&["b".to_owned()], None).unwrap().len(), 1);
        assert_eq!(list().those_of(&[], Some("::g")).unwrap().len(), 2);
        let refused =
            |packages: &[String], text| format!("{:#}", list().those_of(packages, text).unwrap_err());
        assert_eq!(refused(&["xtask".to_owned()], None), "the package 'xtask' has no mutants, expected a, b");
        assert_eq!(refused(&[], Some("nothing")), "no mutant has a name that contains this text");
    }

    #[test]
    fn smaller_sample_is_a_prefix_of_a_larger_one() {
        let all: Vec<_> = (0..100)
            .map(|i| Mutant { package: "a".into(), place: format!("{i}"), name: format!("{i}") })
            .collect();
        let of = |seed, size| sample(all.clone(), seed, size);
        assert_eq!(of(1, 10)[..5], of(1, 5));
        assert_ne!(of(1, 10), of(2, 10));
        // The sample does not depend on the order of the list.
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        assert_eq!(sample(reversed, 1, 10), of(1, 10));
        assert_eq!(of(1, 1000).len(), 100);
    }

    #[test]
    fn rejects_json_that_is_not_a_list_of_mutants() {
        for (json, expected) in
            [("{}", "not a list"), (r#"[{"package": "a"}]"#, "no name"), ("", "not a list")]
        {
            let error = format!("{:#}", List::read(json.as_bytes()).unwrap_err());
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
