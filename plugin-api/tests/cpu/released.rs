//! Today's contract against what was released: within a minor it is the same, or appends.

use std::io::Write;
use std::path::Path;

use crossdock_plugin_api::record::{Abi, Contract, Standing, releases};
use crossdock_plugin_api::{abi, sizes};

const FIRST: Abi = Abi { major: abi::ABI_MAJOR, minor: abi::ABI_MINOR, appended: 0 };

fn on_record() -> Vec<(Abi, Contract)> {
    releases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/released")).unwrap()
}

fn skipped(name: &str) {
    let why = "none is on record yet; `cargo xtask bless --release` records one";
    let mut to = std::io::stderr();
    writeln!(to, "skipped: {name}: {why}").unwrap();
}

/// The tests below skip what is not on record.
#[test]
fn every_folder_of_releases_is_on_record_oldest_first() {
    let found: Vec<String> = on_record().iter().map(|(abi, _)| abi.to_string()).collect();
    assert_eq!(found[..2], ["0.1", "1.0"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/released");
    assert_eq!(found.len(), std::fs::read_dir(folder).unwrap().count());
    assert!(on_record().windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(releases(Path::new("/none/such")).unwrap().is_empty());
}

#[test]
fn the_contract_is_the_last_released_one_or_appends_to_it() {
    let releases = on_record();
    let Some((abi, released)) = releases.last() else {
        return skipped("the contract against the last release");
    };
    if let Err(words) = Contract::today().may_follow(*abi, released) {
        panic!("{words}");
    }
}

#[test]
fn each_release_on_record_follows_the_one_before() {
    for pair in on_record().windows(2) {
        let [(before, released), (_, later)] = pair else { unreachable!("windows of two") };
        later.may_follow(*before, released).unwrap();
    }
}

/// What a struct needs may not be more than the first release of the minor gave it.
#[test]
fn no_struct_of_the_minor_s_first_release_is_too_short_for_us() {
    let releases = on_record();
    let Some((_, first)) =
        releases.iter().find(|(abi, _)| (abi.major, abi.minor) == (FIRST.major, FIRST.minor))
    else {
        return skipped("the least sizes against this minor's first release");
    };
    for (name, least, _) in sizes::told() {
        let line = first.layout.lines().find(|line| line.starts_with(&format!("{name}: size ")));
        // What is not there came later, and may be as long as it likes.
        let Some(line) = line else { continue };
        let size: usize = line.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(
            least <= size,
            "{name}: at least {least} bytes, and {FIRST} had {size}: name what a shorter one may lack"
        );
    }
}

/// Today's contract as if it had been released, and today's with one change in each text.
fn changed(header: (&str, &str), layout: (&str, &str)) -> (Standing, Result<(), String>) {
    let released = Contract::today();
    let replace = |text: &str, (from, to): (&str, &str)| {
        assert!(text.contains(from), "'{from}' is not there any more: choose another for this proof");
        text.replacen(from, to, 1)
    };
    let today =
        Contract { header: replace(&released.header, header), layout: replace(&released.layout, layout) };
    (today.compare(&released), today.may_follow(FIRST, &released))
}

const NOTHING: (&str, &str) = ("", "");

fn breaks(header: (&str, &str), layout: (&str, &str)) -> String {
    let (standing, verdict) = changed(header, layout);
    let Standing::Breaks(lines) = standing else { panic!("not found to be a break: {header:?} {layout:?}") };
    let words = verdict.unwrap_err();
    assert!(
        lines.iter().all(|line| words.contains(line)) && words.contains("CROSSDOCK_ABI_MINOR"),
        "{words}"
    );
    lines.join("; ")
}

#[test]
fn the_same_contract_is_the_same() {
    assert_eq!(changed(NOTHING, NOTHING), (Standing::Same, Ok(())));
}

#[test]
fn a_field_at_the_end_of_a_struct_that_tells_its_size_is_appended() {
    let (standing, verdict) = changed(
        ("  crossdock_str reason;\n", "  crossdock_str reason;\n  uint64_t bytes;\n"),
        (
            "crossdock_column_plan: size 64 align 8\n      0 struct_size\n      8 name\n     24 verdict\n     28 reserved\n     32 to\n     48 reason\n",
            "crossdock_column_plan: size 72 align 8\n      0 struct_size\n      8 name\n     24 verdict\n     28 reserved\n     32 to\n     48 reason\n     64 bytes\n",
        ),
    );
    assert_eq!(standing, Standing::Appends(vec!["crossdock_column_plan: 'bytes' was appended".into()]));
    assert_eq!(verdict, Ok(()));
}

#[test]
fn a_new_struct_and_a_new_constant_are_appended() {
    let (standing, _) = changed(
        ("#define CROSSDOCK_INTERNAL 10", "#define CROSSDOCK_BORED 11\n#define CROSSDOCK_INTERNAL 10"),
        ("crossdock_grid: ", "crossdock_later: size 8 align 8\n      0 struct_size\ncrossdock_grid: "),
    );
    let expected = ["crossdock_later is new", "CROSSDOCK_BORED is new"].map(String::from);
    assert_eq!(standing, Standing::Appends(expected.to_vec()));
}

#[test]
fn a_field_that_moved_vanished_or_changed_its_name_breaks() {
    assert!(
        breaks(NOTHING, ("     40 buffers\n", "     48 buffers\n"))
            .contains("'buffers' at 48, where 'buffers' was at 40")
    );
    assert!(breaks(NOTHING, ("     40 buffers\n", "     40 bytes\n")).contains("'bytes' at 40"));
    assert!(breaks(NOTHING, ("     48 reason\n", "")).contains("crossdock_column_plan: 'reason' is gone"));
    assert!(breaks(NOTHING, ("crossdock_grid:", "crossdock_blocks:")).contains("crossdock_grid is gone"));
}

#[test]
fn a_struct_without_a_size_or_with_longer_parts_may_not_grow() {
    let grid = "crossdock_grid: size 16 align 4\n      0 blocks\n      4 threads\n      8 shared_bytes\n     12 reserved\n";
    let grown = grid.replace("size 16", "size 20") + "     16 more\n";
    assert!(breaks(NOTHING, (grid, &grown)).contains("has no struct_size that would tell"));
    assert!(
        breaks(NOTHING, ("crossdock_input: size ", "crossdock_input: size 1"))
            .contains("one of its fields has changed its size")
    );
}

#[test]
fn a_field_in_what_was_padding_breaks() {
    let plan = "     24 verdict\n     28 reserved\n     32 to\n     48 reason\n";
    let padded = format!("{plan}     60 small\n");
    assert!(breaks(NOTHING, (plan, &padded)).contains("'small' at 60 lies in what was padding"));
}

#[test]
fn another_type_signature_or_value_in_the_same_place_breaks() {
    let told = breaks(("  uint64_t byte_budget;", "  int64_t byte_budget;"), NOTHING);
    assert_eq!(told, "struct crossdock_call: 'int64_t byte_budget', was 'uint64_t byte_budget'");
    let told = breaks(
        (
            "const void* from, size_t bytes, crossdock_error* err",
            "const void* from, uint32_t bytes, crossdock_error* err",
        ),
        NOTHING,
    );
    assert!(told.starts_with("struct crossdock_sink: 'crossdock_code (*write)("), "{told}");
    let told = breaks(("#define CROSSDOCK_BAD_DATA 3", "#define CROSSDOCK_BAD_DATA 4"), NOTHING);
    assert_eq!(told, "CROSSDOCK_BAD_DATA: '4', was '3'");
    let told = breaks(("typedef int32_t crossdock_code;", "typedef int64_t crossdock_code;"), NOTHING);
    assert_eq!(told, "'typedef int32_t crossdock_code;' is gone");
    let told = breaks(("sizeof(crossdock_error),", "sizeof(crossdock_str),"), NOTHING);
    assert!(told.starts_with("CROSSDOCK_META_SIZES_INIT"), "{told}");
}

#[test]
fn a_break_under_another_minor_is_none_and_a_lower_version_is_refused() {
    let released = Contract::today();
    let next = format!("abi {}.{}\n", abi::ABI_MAJOR, abi::ABI_MINOR + 1);
    let this = released.layout.lines().next().unwrap().to_owned() + "\n";
    let mut today = released.clone();
    today.layout =
        today.layout.replacen(&this, &next, 1).replacen("     40 buffers\n", "     48 buffers\n", 1);
    assert_eq!(today.may_follow(FIRST, &released), Ok(()));
    let later = Abi { minor: abi::ABI_MINOR + 1, ..FIRST };
    assert!(released.may_follow(later, &today).unwrap_err().contains("was released before"));
}

#[test]
fn abis_are_named_and_ordered_by_their_numbers() {
    let names = ["0.1", "0.1.1", "0.1.10", "0.2", "1.0"];
    let mut abis: Vec<_> = names.iter().rev().map(|name| Abi::parse(name).unwrap()).collect();
    abis.sort();
    assert_eq!(abis.iter().map(Abi::to_string).collect::<Vec<_>>(), names);
    assert!(["", "0", "0.x", "0.1.2.3", "0.1.x"].iter().all(|name| Abi::parse(name).is_none()));
}

/// The range that a plugin's metadata gives is that of the ABI that it was built against, on both sides.
#[test]
fn the_range_is_that_of_the_version() {
    assert_eq!(abi::API_RANGE, format!("^{}.{}.0", abi::ABI_MAJOR, abi::ABI_MINOR));
    let example = format!("\"{}\"", abi::API_RANGE);
    assert!(
        Contract::today().header.contains(&example),
        "crossdock.h: api_range's comment shows another than {example}"
    );
    assert_eq!(Contract::today().version(), Some((abi::ABI_MAJOR, abi::ABI_MINOR)));
}
