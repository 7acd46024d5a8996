//! Compares `crossdock-host.h` with the headers of earlier releases.

use std::path::Path;

use crossdock_plugin_api::record::{Compatibility, Contract, HOST_HEADER, compare_host_headers, releases};

const HEADER: &str = include_str!("../../include/crossdock-host.h");

#[test]
fn header_equals_or_extends_that_of_the_last_release() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin-api/abi/released");
    let releases = releases(&folder).unwrap();
    let (last, _) = releases.last().expect("a release is recorded");
    let released = std::fs::read_to_string(folder.join(last.to_string()).join(HOST_HEADER)).unwrap();
    let current = Contract::current().version().unwrap();
    compare_host_headers(&released, HEADER).may_follow(current, *last).unwrap();
}

/// The result of a change of the header.
fn changed(from: &str, to: &str) -> Compatibility {
    assert!(HEADER.contains(from), "'{from}' does not occur any more: change this test");
    compare_host_headers(HEADER, &HEADER.replacen(from, to, 1))
}

fn breaks(from: &str, to: &str) -> String {
    let Compatibility::Breaks(lines) = changed(from, to) else { panic!("not a break: '{to}', was '{from}'") };
    lines.join("; ")
}

#[test]
fn changed_and_removed_functions_fields_and_constants_are_breaks() {
    let version = "const char* crossdock_version(void);";
    assert!(
        breaks(version, "const char* crossdock_version(int);")
            .contains("crossdock_version(void);' was removed")
    );
    assert!(breaks(version, "").contains("crossdock_version(void);' was removed"));
    assert!(
        breaks("#define CROSSDOCK_HOST_ONLY_GIVEN 1u", "#define CROSSDOCK_HOST_ONLY_GIVEN 2u")
            .contains("'2u', was '1u'")
    );
    let field = "  size_t struct_size;\n";
    assert!(
        breaks(field, "  uint32_t struct_size;\n")
            .contains("'uint32_t struct_size', was 'size_t struct_size'")
    );
    assert!(breaks(field, "").contains("was 'size_t struct_size'"));
}

#[test]
fn comments_are_ignored_and_new_functions_are_additions() {
    assert_eq!(compare_host_headers(HEADER, HEADER), Compatibility::Same);
    let version = "const char* crossdock_version(void);";
    assert_eq!(changed(version, &format!("/* More. */\n{version}")), Compatibility::Same);
    let added = changed(version, &format!("{version}\nvoid crossdock_f(int a,\n  int b);"));
    assert_eq!(added, Compatibility::Appends(vec!["'void crossdock_f(int a, int b);' is new".into()]));
}
