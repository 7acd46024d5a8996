//! Compares `abi/layout.txt` with the Rust structs and with the header.

use crate::layout::compiler::Language;
use crate::layout::header;
use crossdock_plugin_api::layout;
use std::fmt::Write as _;
use std::io::Write as _;

const RECORD: &str = include_str!("../../../abi/layout.txt");

struct Struct<'a> {
    name: &'a str,
    size: usize,
    align: usize,
    fields: Vec<(&'a str, usize)>,
}

/// Parses the record. Panics if a line is invalid.
fn record(text: &str) -> Vec<Struct<'_>> {
    let mut structs: Vec<Struct<'_>> = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(field) = line.strip_prefix("  ") {
            let (offset, name) = field.trim().split_once(' ').unwrap();
            structs.last_mut().unwrap().fields.push((name, offset.parse().unwrap()));
        } else {
            let (name, rest) = line.split_once(": size ").unwrap();
            let (size, align) = rest.split_once(" align ").unwrap();
            structs.push(Struct {
                name,
                size: size.parse().unwrap(),
                align: align.parse().unwrap(),
                fields: Vec::new(),
            });
        }
    }
    structs
}

/// Creates a translation unit for C and C++. It compiles only if the header matches all lines of
/// the record.
fn assertions(text: &str) -> String {
    let mut unit = String::from("#include \"crossdock.h\"\n#include <stddef.h>\n");
    unit += "#ifdef __cplusplus\n#define HOLDS static_assert\n#define ALIGN alignof\n";
    unit += "#else\n#define HOLDS _Static_assert\n#define ALIGN _Alignof\n#endif\n";
    for Struct { name, size, align, fields } in record(text) {
        writeln!(unit, "HOLDS(sizeof({name}) == {size}, \"size of {name}\");").unwrap();
        writeln!(unit, "HOLDS(ALIGN({name}) == {align}, \"alignment of {name}\");").unwrap();
        for (field, offset) in fields {
            writeln!(unit, "HOLDS(offsetof({name}, {field}) == {offset}, \"offset of {name}.{field}\");")
                .unwrap();
        }
    }
    unit
}

#[test]
fn rust_structs_match_the_layout_record() {
    let current = layout::render();
    let difference = RECORD.lines().zip(current.lines()).find(|(recorded, current)| recorded != current);
    assert!(
        RECORD == current,
        "the layout differs from abi/layout.txt; the first difference (recorded, current) is {difference:?}. Moving, \
         resizing or removing a field breaks the ABI, appending one does not. If the change is intended, run `cargo xtask \
         bless` and commit the record."
    );
}

#[test]
fn layout_record_has_all_structs_of_the_header() {
    let recorded: Vec<&str> = record(RECORD).iter().map(|s| s.name).collect();
    let declared = header::structs();
    let missing: Vec<_> = declared.iter().filter(|name| !recorded.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "declared in crossdock.h, but not in the record: {missing:?}");
    assert_eq!(recorded.len(), declared.len(), "recorded: {recorded:?}; declared: {declared:?}");
}

#[test]
fn layout_record_has_all_fields_of_the_header() {
    for Struct { name, fields, .. } in record(RECORD) {
        let recorded: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
        assert_eq!(
            header::fields(name),
            recorded,
            "the fields of {name}: crossdock.h (left), the record (right)"
        );
    }
}

#[test]
fn layout_record_matches_the_header_in_c() {
    Language::C.check(&assertions(RECORD)).unwrap();
}

#[test]
fn layout_record_matches_the_header_in_cpp() {
    if !Language::Cpp.exists() {
        writeln!(std::io::stderr(), "skipped: the header as C++: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    Language::Cpp.check("#include \"crossdock.h\"\n").unwrap();
    Language::Cpp.check(&assertions(RECORD)).unwrap();
}

#[test]
fn moved_fields_do_not_compile() {
    let moved = RECORD.replacen("     40 buffers\n", "     48 buffers\n", 1);
    assert_ne!(moved, RECORD, "the record does not have this line any more: change this test");
    let output = Language::C.check(&assertions(&moved)).expect_err("the wrong offset was accepted");
    assert!(output.contains("offset of struct ArrowArray.buffers"), "{output}");
}

#[test]
fn wrong_sizes_do_not_compile() {
    let grown = RECORD.replacen("struct ArrowArray: size 80", "struct ArrowArray: size 88", 1);
    assert_ne!(grown, RECORD);
    let output = Language::C.check(&assertions(&grown)).expect_err("the wrong size was accepted");
    assert!(output.contains("size of struct ArrowArray"), "{output}");
}
