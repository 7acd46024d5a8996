//! Compiles `crossdock-host.h`, and compares the header with the library's symbols and with the
//! structs in Rust.
#[path = "../../src/abi.rs"]
#[allow(dead_code, unused_imports)]
mod abi;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use crate::support::{built_file, cc, cxx, run, skipped};

const HEADER: &str = include_str!("../../include/crossdock-host.h");

/// The header without comments and inline functions.
fn code() -> String {
    let mut code = String::new();
    let mut rest = HEADER;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code += rest;
    let mut without_inline = String::new();
    let mut rest = code.as_str();
    while let Some((before, inline)) = rest.split_once("static inline ") {
        without_inline += before;
        rest = inline.split_once("\n}").map_or("", |(_, after)| after);
    }
    without_inline + rest
}

/// The names of the declared functions. A function is declared at the start of a line, unlike a
/// field, which is indented.
fn declared() -> BTreeSet<String> {
    let code = code();
    let begins = |line: &&str| !line.starts_with([' ', '#', '}']) && !line.starts_with("typedef");
    let named = code.lines().filter(begins).filter_map(|line| line.split_once('('));
    named.filter_map(|(before, _)| before.rsplit([' ', '*']).next()).map(str::to_owned).collect()
}

/// Compiles a translation unit, but writes no object file.
fn check(compiler: &mut Command, name: &str, unit: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, unit).unwrap();
    let out = compiler.arg("-fsyntax-only").arg(&file).output().unwrap();
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

const UNIT: &str = "#include <crossdock-host.h>\n\
    int main(void) { crossdock_error err = CROSSDOCK_ERROR_INIT; return CROSSDOCK_CHECK_VERSION(&err); }\n";

#[test]
fn header_compiles_as_c11_without_warnings() {
    check(&mut cc(), "unit.c", UNIT).unwrap();
}

#[test]
fn header_compiles_as_cpp17_without_warnings() {
    let Some(mut cxx) = cxx() else {
        return skipped("crossdock-host.h as C++", "no C++ compiler (CXX, c++)");
    };
    check(&mut cxx, "unit.cpp", UNIT).unwrap();
}

#[test]
fn library_exports_exactly_the_functions_of_the_header() {
    let library = built_file("libcrossdock.so");
    let Ok(out) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() else {
        return skipped("the library's symbols", "no nm");
    };
    let out = String::from_utf8(out.stdout).unwrap();
    let exported: BTreeSet<String> =
        out.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let declared = declared();
    assert!(declared.len() > 15, "the header was not parsed: {declared:?}");
    assert_eq!(exported, declared, "the library (left), the header (right)");
}

#[test]
fn soname_has_the_abi_major_version() {
    let out = run(Command::new("readelf").arg("-d").arg(built_file("libcrossdock.so")));
    assert!(out.contains(&format!("soname: [{}]", crate::support::soname())), "{out}");
}

/// Returns a translation unit that compiles only if the layouts in the header are those of
/// `abi::layouts`.
fn assertions() -> String {
    let mut unit = String::from("#include <crossdock-host.h>\n#include <stddef.h>\n");
    unit += "#ifdef __cplusplus\n#define HOLDS static_assert\n#define ALIGN alignof\n";
    unit += "#else\n#define HOLDS _Static_assert\n#define ALIGN _Alignof\n#endif\n";
    for (name, size, align, fields) in abi::layouts() {
        writeln!(unit, "HOLDS(sizeof({name}) == {size}, \"size of {name}\");").unwrap();
        writeln!(unit, "HOLDS(ALIGN({name}) == {align}, \"alignment of {name}\");").unwrap();
        for (field, offset) in fields {
            writeln!(unit, "HOLDS(offsetof({name}, {field}) == {offset}, \"offset of {name}.{field}\");")
                .unwrap();
        }
    }
    for (name, value) in [
        ("HOST_ONLY_GIVEN", abi::HOST_ONLY_GIVEN),
        ("HOST_LENIENT", abi::HOST_LENIENT),
        ("HOST_UNTOUCHABLE", abi::HOST_UNTOUCHABLE),
        ("CANDIDATE_CHOSEN", abi::CANDIDATE_CHOSEN),
        ("CANDIDATE_REFUSED", abi::CANDIDATE_REFUSED),
        ("CANDIDATE_SHADOWED", abi::CANDIDATE_SHADOWED),
        ("READ_LIMIT", abi::READ_LIMIT),
        ("READ_DEVICE_ROWS", abi::READ_DEVICE_ROWS),
        ("SESSION_VALIDATE", abi::SESSION_VALIDATE),
    ] {
        writeln!(unit, "HOLDS(CROSSDOCK_{name} == {value}u, \"{name}\");").unwrap();
    }
    unit
}

#[test]
fn c_and_cpp_layouts_equal_rust_layouts() {
    check(&mut cc(), "layout.c", &assertions()).unwrap();
    match cxx() {
        Some(mut cxx) => check(&mut cxx, "layout.cpp", &assertions()).unwrap(),
        None => skipped("the layout in C++", "no C++ compiler (CXX, c++)"),
    }
}

#[test]
fn layout_check_detects_moved_fields_and_grown_structs() {
    let correct = assertions();
    for (from, to, expected) in [
        ("offsetof(crossdock_report, stages) == 48", "offsetof(crossdock_report, stages) == 56", "stages"),
        ("sizeof(crossdock_ledger) == 64", "sizeof(crossdock_ledger) == 72", "size of crossdock_ledger"),
    ] {
        let wrong = correct.replace(from, to);
        assert_ne!(wrong, correct, "'{from}' does not exist: choose another assertion for this test");
        let error = check(&mut cc(), "layout.c", &wrong).expect_err("a wrong layout was accepted");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn rust_has_all_structs_and_fields_of_the_header() {
    let code = code();
    let mut declared = BTreeSet::new();
    for part in code.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once(" {") else { continue };
        if name.contains(';') {
            continue;
        }
        let (body, _) = rest.split_once("\n}").unwrap();
        for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let field = match field.split_once("(*") {
                Some((_, function)) => function.split_once(')').unwrap().0,
                None => field.rsplit([' ', '*']).next().unwrap(),
            };
            declared.insert(format!("{name}.{field}"));
        }
    }
    let in_rust: BTreeSet<String> = abi::layouts()
        .iter()
        .flat_map(|(name, .., fields)| fields.iter().map(move |(field, _)| format!("{name}.{field}")))
        .collect();
    assert_eq!(declared, in_rust, "the header (left), Rust (right)");
}
