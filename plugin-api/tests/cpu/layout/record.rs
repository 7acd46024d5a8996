//! `abi/layout.txt` against Rust on one side and the header on the other.

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

/// Reads the record; a line that is not understood fails the test that asked.
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

/// A translation unit that compiles only if the header agrees with every line of the record, in C and in C++.
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
fn the_rust_structs_lie_as_the_committed_record_says() {
    let now = layout::render();
    let moved = RECORD.lines().zip(now.lines()).find(|(recorded, now)| recorded != now);
    assert!(
        RECORD == now,
        "the ABI's layout is not what abi/layout.txt records; the first difference (recorded, now) is {moved:?}. \
         A moved, resized or removed field is a break of the ABI; an appended one is not. If it is meant, \
         run `cargo xtask bless` and commit the record."
    );
}

#[test]
fn the_record_names_every_struct_of_the_header() {
    let recorded: Vec<&str> = record(RECORD).iter().map(|s| s.name).collect();
    let declared = header::structs();
    let missing: Vec<_> = declared.iter().filter(|name| !recorded.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "declared in crossdock.h and not in the record: {missing:?}");
    assert_eq!(recorded.len(), declared.len(), "recorded: {recorded:?}; declared: {declared:?}");
}

#[test]
fn the_record_names_every_field_of_the_header() {
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
fn the_c_compiler_finds_every_field_where_the_record_says() {
    Language::C.check(&assertions(RECORD)).unwrap();
}

#[test]
fn the_cpp_compiler_finds_every_field_where_the_record_says() {
    if !Language::Cpp.exists() {
        writeln!(std::io::stderr(), "skipped: the header as C++: no C++ compiler (CXX, c++)").unwrap();
        return;
    }
    Language::Cpp.check("#include \"crossdock.h\"\n").unwrap();
    Language::Cpp.check(&assertions(RECORD)).unwrap();
}

#[test]
fn a_field_that_moved_by_eight_bytes_does_not_compile() {
    let moved = RECORD.replacen("     40 buffers\n", "     48 buffers\n", 1);
    assert_ne!(moved, RECORD, "the record has no such line any more: choose another for this proof");
    let said = Language::C.check(&assertions(&moved)).expect_err("the wrong offset was accepted");
    assert!(said.contains("offset of struct ArrowArray.buffers"), "{said}");
}

#[test]
fn a_struct_that_grew_by_eight_bytes_does_not_compile() {
    let grown = RECORD.replacen("struct ArrowArray: size 80", "struct ArrowArray: size 88", 1);
    assert_ne!(grown, RECORD);
    let said = Language::C.check(&assertions(&grown)).expect_err("the wrong size was accepted");
    assert!(said.contains("size of struct ArrowArray"), "{said}");
}
