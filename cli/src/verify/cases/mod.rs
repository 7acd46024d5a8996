//! The cases, by what they look at. A case's ground is what it counts on: what is broken there is told there, and once.

mod arrays;
mod calls;
mod cancelling;
mod concurrency;
mod device;
mod encoding;
mod entry;
mod errors;
mod exporter;
mod hostile;
mod importer;
mod interfaces;
mod lifetimes;
mod locks;
mod memory;
mod schemas;
mod streams;
mod structs;
mod tensors;

use super::case::Case;

/// All cases, each after those that it stands on.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let groups: [&'static [Case]; 19] = [
        entry::CASES,
        interfaces::CASES,
        errors::CASES,
        exporter::CASES,
        importer::CASES,
        schemas::CASES,
        streams::CASES,
        lifetimes::CASES,
        memory::CASES,
        device::CASES,
        hostile::CASES,
        calls::CASES,
        cancelling::CASES,
        structs::CASES,
        concurrency::CASES,
        locks::CASES,
        arrays::CASES,
        tensors::CASES,
        encoding::CASES,
    ];
    groups.into_iter().flatten()
}

/// Whether a case looks at what a whole device has, which all processes share.
pub fn is_alone(case: &Case) -> bool {
    device::CASES.iter().any(|own| own.name == case.name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_a_rule_and_grounds_before_it() {
        let mut before = HashSet::new();
        for case in all() {
            assert!(
                case.name.split_once('.').is_some_and(|(group, name)| !group.is_empty() && !name.is_empty())
            );
            assert!(!case.rule.is_empty() && !case.stands.is_empty(), "{}", case.name);
            let unknown: Vec<_> = case.ground.iter().filter(|name| !before.contains(*name)).collect();
            assert!(unknown.is_empty(), "{} stands on {unknown:?}", case.name);
            assert!(before.insert(case.name), "{} is there twice", case.name);
        }
    }
}
