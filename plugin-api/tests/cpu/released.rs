//! Compares the current ABI with the released ABIs. Within a version, the ABI may only append.

use std::io::Write;
use std::path::Path;

use crossdock_plugin_api::record::{Abi, Compatibility, Contract, releases};
use crossdock_plugin_api::{abi, sizes};

/// The version with which changed ABIs are compared.
const RELEASED: Abi = Abi { major: abi::ABI_MAJOR, minor: abi::ABI_MINOR, patch: 0 };

fn recorded_releases() -> Vec<(Abi, Contract)> {
    releases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/released")).unwrap()
}

fn skipped(name: &str) {
    let why = "no release is recorded yet; `cargo xtask bless --release` records one";
    let mut to = std::io::stderr();
    writeln!(to, "skipped: {name}: {why}").unwrap();
}

/// Without this test, a missing record would not be noticed, because the other tests skip it.
#[test]
fn reads_all_recorded_abi_versions_in_ascending_order() {
    let versions: Vec<String> = recorded_releases().iter().map(|(abi, _)| abi.to_string()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/released");
    // The folder does not exist before the first release.
    assert_eq!(versions.len(), std::fs::read_dir(folder).map_or(0, Iterator::count));
    assert!(recorded_releases().windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(releases(Path::new("/none/such")).unwrap().is_empty());
}

#[test]
fn current_abi_equals_or_extends_the_last_published_abi() {
    let releases = recorded_releases();
    let Some((abi, released)) = releases.last() else {
        return skipped("the current ABI against the last release");
    };
    if let Err(message) = Contract::current().may_follow(*abi, released) {
        panic!("{message}");
    }
}

#[test]
fn each_recorded_abi_version_is_allowed_after_its_predecessor() {
    for pair in recorded_releases().windows(2) {
        let [(before, released), (_, later)] = pair else { unreachable!("windows of two") };
        later.may_follow(*before, released).unwrap();
    }
}

/// The struct sizes of the first release of this version must stay accepted.
#[test]
fn minimum_sizes_accept_the_structs_of_the_first_published_version() {
    let releases = recorded_releases();
    let Some((_, first)) =
        releases.iter().find(|(abi, _)| (abi.major, abi.minor) == (RELEASED.major, RELEASED.minor))
    else {
        return skipped("the least sizes against the first release of this version");
    };
    for (name, min_bytes, _) in sizes::sized_structs() {
        let line = first.layout.lines().find(|line| line.starts_with(&format!("{name}: size ")));
        // Structs that a later release added have no size in the first release.
        let Some(line) = line else { continue };
        let size: usize = line.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(
            min_bytes <= size,
            "{name}: requires {min_bytes} bytes, but the first release had {size}: name the first field that may be missing"
        );
    }
}

/// Applies a change to the header and to the layout table of the current ABI. Compares the changed
/// ABI with the unchanged ABI, as if the unchanged ABI had been released.
fn changed(header: (&str, &str), layout: (&str, &str)) -> (Compatibility, Result<(), String>) {
    let mut released = Contract::current();
    let version = format!("abi {}\n", released.version().unwrap());
    released.layout = released.layout.replacen(&version, &format!("abi {RELEASED}\n"), 1);
    let replace = |text: &str, (from, to): (&str, &str)| {
        assert!(text.contains(from), "'{from}' does not occur any more: change this test");
        text.replacen(from, to, 1)
    };
    let current =
        Contract { header: replace(&released.header, header), layout: replace(&released.layout, layout) };
    (current.compare(&released), current.may_follow(RELEASED, &released))
}

const NOTHING: (&str, &str) = ("", "");

fn breaks(header: (&str, &str), layout: (&str, &str)) -> String {
    let (compatibility, verdict) = changed(header, layout);
    let Compatibility::Breaks(lines) = compatibility else {
        panic!("not reported as a break: {header:?} {layout:?}")
    };
    let message = verdict.unwrap_err();
    assert!(
        lines.iter().all(|line| message.contains(line)) && message.contains("CROSSDOCK_ABI_MAJOR"),
        "{message}"
    );
    lines.join("; ")
}

#[test]
fn comparison_of_equal_abis_returns_same() {
    assert_eq!(changed(NOTHING, NOTHING), (Compatibility::Same, Ok(())));
}

#[test]
fn accepts_a_field_at_the_end_of_a_sized_struct() {
    let (compatibility, verdict) = changed(
        ("  crossdock_str reason;\n", "  crossdock_str reason;\n  uint64_t bytes;\n"),
        (
            "crossdock_column_plan: size 64 align 8\n      0 struct_size\n      8 name\n     24 verdict\n     28 reserved\n     32 to\n     48 reason\n",
            "crossdock_column_plan: size 72 align 8\n      0 struct_size\n      8 name\n     24 verdict\n     28 reserved\n     32 to\n     48 reason\n     64 bytes\n",
        ),
    );
    let expected = vec!["crossdock_column_plan: 'bytes' was appended".into()];
    assert_eq!(compatibility, Compatibility::Appends(expected));
    let message = verdict.unwrap_err();
    assert!(message.contains("'bytes' was appended") && message.contains("CROSSDOCK_ABI_PATCH"), "{message}");
    assert_eq!(compatibility.may_follow(Abi { patch: 1, ..RELEASED }, RELEASED), Ok(()));
}

#[test]
fn accepts_a_new_struct_and_a_new_constant() {
    let (compatibility, _) = changed(
        ("#define CROSSDOCK_INTERNAL 10", "#define CROSSDOCK_BORED 11\n#define CROSSDOCK_INTERNAL 10"),
        ("crossdock_launch: ", "crossdock_later: size 8 align 8\n      0 struct_size\ncrossdock_launch: "),
    );
    let expected = ["crossdock_later is new", "CROSSDOCK_BORED is new"].map(String::from);
    assert_eq!(compatibility, Compatibility::Appends(expected.to_vec()));
}

#[test]
fn rejects_moved_removed_and_renamed_fields() {
    assert!(
        breaks(NOTHING, ("     40 buffers\n", "     48 buffers\n"))
            .contains("'buffers' at 48, was 'buffers' at 40")
    );
    assert!(breaks(NOTHING, ("     40 buffers\n", "     40 bytes\n")).contains("'bytes' at 40"));
    assert!(
        breaks(NOTHING, ("     48 reason\n", "")).contains("crossdock_column_plan: 'reason' was removed")
    );
    assert!(
        breaks(NOTHING, ("crossdock_launch:", "crossdock_blocks:")).contains("crossdock_launch was removed")
    );
}

#[test]
fn rejects_growth_of_unsized_structs_and_of_fields() {
    let range = "crossdock_row_range: size 16 align 8\n      0 begin\n      8 end\n";
    let grown = range.replace("size 16", "size 24") + "     16 more\n";
    assert!(breaks(NOTHING, (range, &grown)).contains("appended to a struct without a struct_size"));
    assert!(
        breaks(NOTHING, ("crossdock_input: size ", "crossdock_input: size 1"))
            .contains("the size of a field has changed")
    );
}

#[test]
fn rejects_a_field_in_former_padding() {
    let plan = "     24 verdict\n     28 reserved\n     32 to\n     48 reason\n";
    let padded = format!("{plan}     60 small\n");
    assert!(breaks(NOTHING, (plan, &padded)).contains("'small' at 60 is in the former padding"));
}

#[test]
fn rejects_changed_types_signatures_and_values() {
    let lines = breaks(("  uint64_t byte_budget;", "  int64_t byte_budget;"), NOTHING);
    assert_eq!(lines, "struct crossdock_call: 'int64_t byte_budget', was 'uint64_t byte_budget'");
    let lines = breaks(
        (
            "const void* from, size_t bytes, crossdock_error* err",
            "const void* from, uint32_t bytes, crossdock_error* err",
        ),
        NOTHING,
    );
    assert!(lines.starts_with("struct crossdock_sink: 'crossdock_code (*write)("), "{lines}");
    let lines = breaks(("#define CROSSDOCK_BAD_DATA 3", "#define CROSSDOCK_BAD_DATA 4"), NOTHING);
    assert_eq!(lines, "CROSSDOCK_BAD_DATA: '4', was '3'");
    let lines = breaks(("typedef int32_t crossdock_code;", "typedef int64_t crossdock_code;"), NOTHING);
    assert_eq!(lines, "'typedef int32_t crossdock_code;' was removed");
    let lines = breaks(("sizeof(crossdock_error),", "sizeof(crossdock_str),"), NOTHING);
    assert!(lines.starts_with("CROSSDOCK_META_SIZES_INIT"), "{lines}");
}

#[test]
fn allows_breaking_changes_in_new_major_version_and_rejects_lower_version() {
    let breaks = Compatibility::Breaks(vec!["'a' was removed".into()]);
    let later = Abi { major: RELEASED.major + 1, ..RELEASED };
    assert_eq!(breaks.may_follow(later, RELEASED), Ok(()));
    for same_major in [RELEASED, Abi { minor: RELEASED.minor + 1, ..RELEASED }] {
        assert!(breaks.may_follow(same_major, RELEASED).unwrap_err().contains("'a' was removed"));
    }
    assert!(Compatibility::Same.may_follow(RELEASED, later).unwrap_err().contains("which has been released"));
}

#[test]
fn versions_are_ordered_by_their_numbers() {
    let names = ["0.1.0", "0.1.1", "0.1.10", "0.2.0", "1.0.0"];
    let mut abis: Vec<_> = names.iter().rev().map(|name| Abi::parse(name).unwrap()).collect();
    abis.sort();
    assert_eq!(abis.iter().map(Abi::to_string).collect::<Vec<_>>(), names);
    assert!(["", "0", "0.1", "0.1.2.3", "0.1.x"].iter().all(|name| Abi::parse(name).is_none()));
}

#[test]
fn api_range_equals_abi_version() {
    assert_eq!(abi::API_RANGE, format!("^{}.{}.0", abi::ABI_MAJOR, abi::ABI_MINOR));
    let example = format!("\"{}\"", abi::API_RANGE);
    assert!(
        Contract::current().header.contains(&example),
        "crossdock.h: the comment of api_range does not show {example}"
    );
    let version = Abi { patch: abi::ABI_PATCH, ..RELEASED };
    assert_eq!(Contract::current().version(), Some(version));
}
