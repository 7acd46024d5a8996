//! Reads malformed CSV and mismatched types. The error must name file, line, column, expected and
//! actual value, and nothing may leak.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema};

use crate::csv::fixture::{Fixture, Pairs};
use crate::csv::tables::single;

/// A CSV text, the options with which it is read, and parts of the expected message.
type Case<'a> = (&'a [u8], Pairs<'a>, &'a [&'a str]);

const CASES: &[Case<'static>] = &[
    (b"", &[], &["line 1", "expected a header"]),
    (b"\xef\xbb\xbf\"a\"\n1\n", &[], &["line 1", "field 1", "a quote in a field without quotes"]),
    (b"a,b\n1,2\n1,2,3\n", &[], &["line 3", "expected 2 fields", "got 3"]),
    (b"a,b\n1,2\n\n3,4\n", &[], &["line 3", "expected 2 fields", "got 1"]),
    (b"a,b\n1,2\n1,\"2\n3\n", &[], &["line 3", "field 2", "never closed"]),
    (b"a,b\n1,\"2\"x\n", &[], &["line 2", "field 2", "behind a closing quote"]),
    (b"a,b\n1,\"2\" \n", &[], &["line 2", "field 2", "behind a closing quote"]),
    (b"a,b\n1,2\"\n", &[], &["line 2", "field 2", "a quote in a field without quotes"]),
    (b"a,b\n1,2\r3,4\n", &[], &["line 2", "field 2", "carriage return"]),
    (b"a,b\n1,2\r", &[], &["line 2", "field 2", "carriage return"]),
    (b"a,b\n1,\0\n", &[], &["line 2", "field 2", "NUL byte"]),
    (b"a,b\n1,\"\0\"\n", &[], &["line 2", "column 'b'", "NUL bytes"]),
    (b"\xff\xfea\0,\0b\0", &[], &["line 1", "field 1", "NUL byte"]),
    (b"a,b\nx,\xff\n", &[], &["line 2", "column 'b'", "expected utf8", "'?'"]),
    (b"a,\xc3\n1,2\n", &[], &["line 1", "name", "UTF-8"]),
    (b"a,b\n\"1\n2\",\"\xed\xa0\x80\"\n", &[], &["line 2", "column 'b'", "expected utf8"]),
    (b"a\n128\n", &[("types", "int8")], &["line 2", "column 'a'", "expected int8", "'128'"]),
    (b"a\n-129\n", &[("types", "int8")], &["expected int8", "'-129'"]),
    (b"a\n9223372036854775808\n", &[("types", "int64")], &["expected int64"]),
    (b"a\n\n1.5\n", &[("types", "int64")], &["line 3", "expected int64", "'1.5'"]),
    (b"a\n 1\n", &[("types", "int64")], &["expected int64", "' 1'"]),
    (b"a\n1-\n", &[("types", "int64")], &["expected int64", "'1-'"]),
    (b"a\n1e309\n", &[("types", "float64")], &["expected float64", "'1e309'"]),
    (b"a\n0x10\n", &[("types", "float64")], &["expected float64", "'0x10'"]),
    (b"a\n1.5.\n", &[("types", "float64")], &["expected float64", "'1.5.'"]),
    (b"a\n\"\"\n", &[("types", "int64")], &["line 2", "expected int64", "''"]),
    (b"a\ny\n", &[("types", "bool")], &["expected bool", "'y'"]),
    (b"a\n1\n", &[("types", "int8,int8")], &["types", "expected 1 of", "'int8,int8'"]),
    (b"a,b\n1,2\n", &[("types", "int8")], &["types", "expected 2 of", "'int8'"]),
    (b"a\n1\n", &[("types", "int128")], &["types", "'int128'", "float64"]),
    (b"a\n1\n", &[("colour", "red")], &["no option 'colour'", "it has delimiter and types"]),
    (b"a\n1\n", &[("types", "")], &["types", "a type for each column"]),
    (b"a\n1\n", &[("delimiter", "::")], &["delimiter", "one of", "'::'"]),
    (b"a\n1\n", &[("delimiter", "e")], &["delimiter", "one of"]),
];

#[test]
fn error_for_malformed_csv_names_line_and_column() {
    let fixture = Fixture::new();
    for (text, options, expected) in CASES {
        let shown = String::from_utf8_lossy(text);
        let error = fixture.read(text, options).expect_err(&shown);
        for part in *expected {
            assert!(error.contains(part), "{shown:?}: {error:?} does not contain {part:?}");
        }
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
    fixture.assert_settled();
}

#[test]
fn accepts_csv_variants() {
    let fixture = Fixture::new();
    for (text, options, rows) in [
        (&b"a,b\n1,2"[..], &[][..], 1),
        (b"\xef\xbb\xbfa,b\n1,2\n", &[], 1),
        (b"a,b\r\n1,2\r\n3,4\r\n", &[], 2),
        (b"\n1\n", &[], 1),
        (b"a,b\n\"1\",\"\"\n", &[], 1),
        (b"a\tb\n1\t2\n", &[("delimiter", "tab")], 1),
        (b"a,b\n", &[], 0),
        (b"a\n1\n\n\n", &[], 3),
    ] {
        let read = fixture.read(text, options).unwrap();
        assert_eq!(read.rows(), rows, "{:?}", String::from_utf8_lossy(text));
    }
    fixture.assert_settled();
}

#[test]
fn rejects_schemas_that_do_not_match() {
    let fixture = Fixture::new();
    let schema = |fields: &[(&str, DataType, bool)]| {
        Schema::new(fields.iter().map(|(n, t, nulls)| Field::new(*n, t.clone(), *nulls)).collect::<Vec<_>>())
    };
    let list = DataType::new_list(DataType::Int8, true);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    for (fields, text, expected) in [
        (&[("a", DataType::Int8, false)][..], "a\n\n", &["line 2", "column 'a'", "null", "allows none"][..]),
        (&[("b", DataType::Int8, true)], "a\n1\n", &["line 1", "'b'", "'a'"]),
        (&[("a", DataType::Int8, true)], "a,b\n1,2\n", &["expected 1 fields", "got 2"]),
        (&[("a", list, true)], "a\n1\n", &["column 'a'", "'+l'", "int64"]),
        (&[("a", DataType::Binary, true)], "a\n1\n", &["column 'a'", "'z'"]),
        (&[("a", dictionary, true)], "a\n1\n", &["column 'a'", "dictionary", "'c'"]),
    ] {
        let error = fixture.read_with(text.as_bytes(), &schema(fields), &[]).unwrap_err();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        }
    }
    let both = fixture.read_with(b"a\n1\n", &schema(&[("a", DataType::Int8, true)]), &[("types", "int8")]);
    assert!(both.unwrap_err().contains("expected one of them"));
    fixture.assert_settled();
}

#[test]
fn error_for_unsupported_type_names_the_column() {
    let fixture = Fixture::new();
    let text = |value: &'static str| Arc::new(StringArray::from(vec!["x", value])) as ArrayRef;
    let list = ListArray::from_iter_primitive::<types::Int8Type, _, _>([Some([Some(1)])]);
    let cases: [(ArrayRef, &[&str]); 6] = [
        (Arc::new(list), &["column 'c'", "'+l'", "leave it out", "cast"]),
        (Arc::new(BinaryArray::from(vec![&b"x"[..]])), &["column 'c'", "'z'"]),
        (Arc::new(StringViewArray::from(vec!["x"])), &["column 'c'", "'vu'"]),
        (Arc::new(TimestampSecondArray::from(vec![0])), &["column 'c'", "'tss:'"]),
        (
            Arc::new(DictionaryArray::<types::Int8Type>::from_iter([Some("x")])),
            &["column 'c'", "with a dictionary"],
        ),
        (text("a\0b"), &["column 'c'", "row 2", "NUL"]),
    ];
    for (array, expected) in cases {
        let error = fixture.write(&[single("c", array)], &[]).unwrap_err();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        }
    }
    let unknown = fixture.write(&[single("c", text("y"))], &[("types", "utf8")]).unwrap_err();
    assert!(unknown.contains("writing csv has no option 'types'; it has delimiter"), "{unknown}");
    fixture.assert_settled();
}

/// The host does not validate arrays of the same process, so the plugin must check the offsets.
#[test]
fn rejects_malformed_offsets_without_reading_past_the_buffer() {
    let fixture = Fixture::new();
    for (list, row) in [(vec![0, 5, 2], 1), (vec![0, 1, 1_000_000, 6], 2), (vec![0, -1, 6], 1)] {
        // SAFETY: none: the offsets are malformed on purpose, and only the plugin under test reads
        // them.
        let offsets = unsafe { OffsetBuffer::new_unchecked(list.into()) };
        // SAFETY: none: the offsets are malformed on purpose, and only the plugin under test reads
        // them.
        let array = unsafe { StringArray::new_unchecked(offsets, Buffer::from(b"abcdef"), None) };
        let error = fixture.write(&[single("c", Arc::new(array))], &[]).unwrap_err();
        assert!(error.contains(&format!("column 'c', row {row}: offsets")), "{error}");
    }
    fixture.assert_settled();
}
