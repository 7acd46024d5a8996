//! The cases, in one module per subject. Only the case for a rule reports that the plugin breaks
//! the rule, because the cases that depend on this case are skipped.

mod aliases;
mod arrays;
mod call_settings;
mod cancelled_midway;
mod concurrency;
mod device_memory;
mod device_rows;
mod encoder;
mod encoding;
mod entry;
mod errors;
mod exporter;
mod fragments;
mod hostile_bytes;
mod importer;
mod interfaces;
mod ipc;
mod lifetimes;
mod locks;
mod memory;
mod opener;
mod selection;
mod stream_schemas;
mod structs;
mod tensors;
mod woken_read;

use super::case::Case;
use aliases::ALIASES;

/// All cases. Each case follows the cases that it depends on.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let groups: [&'static [Case]; 27] = [
        entry::CASES,
        interfaces::CASES,
        errors::CASES,
        exporter::CASES,
        device_rows::IMPORTER,
        importer::CASES,
        device_rows::EXPORTER,
        device_rows::ENCODING,
        selection::CASES,
        stream_schemas::CASES,
        ipc::CASES,
        lifetimes::CASES,
        memory::CASES,
        device_memory::CASES,
        fragments::CASES,
        hostile_bytes::CASES,
        call_settings::CASES,
        cancelled_midway::CASES,
        woken_read::CASES,
        structs::CASES,
        concurrency::CASES,
        locks::CASES,
        arrays::CASES,
        tensors::CASES,
        encoding::CASES,
        encoder::CASES,
        opener::CASES,
    ];
    groups.into_iter().flatten()
}

/// The case with this name, or with this former name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|case| names(case).any(|other| other == name))
}

/// The name of a case and its former names.
pub fn names(case: &Case) -> impl Iterator<Item = &'static str> {
    let name = case.name;
    let former = ALIASES.iter().filter(move |(_, present)| *present == name).map(|(former, _)| *former);
    std::iter::once(name).chain(former)
}

/// Whether a case must run alone, because it measures a whole device, which all processes share.
pub fn is_exclusive(case: &Case) -> bool {
    device_memory::CASES.iter().any(|exclusive| exclusive.name == case.name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_case_has_unique_name_a_rule_and_only_earlier_dependencies() {
        let mut earlier = HashSet::new();
        for case in all() {
            assert!(
                case.name.split_once('.').is_some_and(|(group, name)| !group.is_empty() && !name.is_empty())
            );
            assert!(!case.rule.is_empty() && !case.spec_ref.is_empty(), "{}", case.name);
            let unknown: Vec<_> = case.depends_on.iter().filter(|name| !earlier.contains(*name)).collect();
            assert!(unknown.is_empty(), "{} depends on {unknown:?}", case.name);
            assert!(earlier.insert(case.name), "{} exists twice", case.name);
        }
    }

    #[test]
    fn former_names_find_the_renamed_cases() {
        for (former, present) in ALIASES {
            assert_eq!(find(former).map(|case| case.name), Some(present));
            assert!(all().all(|case| case.name != former), "{former} is a present name");
        }
    }
}
