//! What is no CSV, or not of the types asked for: an error with file, line, column, expected and got, and no leak.

use std::sync::Arc;

use arrow_array::*;
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema};

use crate::bench::{Bench, Pairs};
use crate::tables::single;

/// The text, the options, parts of what is said.
type Case<'a> = (&'a [u8], Pairs<'a>, &'a [&'a str]);

const CASES: &[Case<'static>] = &[
    (b"", &[], &["empty", "header"]),
    (b"\xef\xbb\xbf", &[], &["empty", "header"]),
    (b"\n\n", &[], &["empty", "header"]),
    (b"", &[("header", "false")], &["empty", "first row"]),
    (b"a,b\n1,2\n1,2,3\n", &[], &["line 3", "expected 2 fields", "got more"]),
    (b"a,b\n\n\n1\n", &[], &["line 4", "expected 2 fields", "got 1"]),
    (b"a,b\n1,2\n1,\"2\n3\n", &[], &["line 3", "field 2", "never closed"]),
    (b"a,b\n1,\"2\"x\n", &[], &["line 2", "field 2", "behind its closing quote"]),
    (b"a,b\n1,\"2\" \n", &[], &["line 2", "field 2", "behind its closing quote"]),
    (b"a,b\n1,2\"\n", &[], &["line 2", "field 2", "quote", "quote=none"]),
    (b"a,b\n1,2\r3,4\n", &[], &["line 2", "carriage return"]),
    (b"a,b\n1,2\r", &[], &["line 2", "carriage return"]),
    (b"a,b\n1,\0\n", &[], &["line 2", "field 2", "NUL", "UTF-16"]),
    (b"a,b\n1,\"\0\"\n", &[], &["line 2", "field 2", "NUL"]),
    (b"\xff\xfea\0,\0b\0", &[], &["line 1", "NUL", "UTF-16"]),
    (b"a,b\nx,\xff\n", &[], &["line 2", "column 'b'", "0xff", "UTF-8", "iconv"]),
    (b"a,\xc3\n1,2\n", &[], &["line 1", "the header", "0xc3", "UTF-8"]),
    (b"a,b\n\"1\n2\",\"\xed\xa0\x80\"\n", &[], &["line 3", "column 'b'", "0xed"]),
    (b"a,b\n1,22222\n", &[("max_field_bytes", "4")], &["line 2", "field 2", "4 bytes", "max_field_bytes"]),
    (
        b"a,b\n1,\"2\n\n\n\n\n\n",
        &[("max_field_bytes", "4")],
        &["line 2", "field 2", "4 bytes", "max_field_bytes"],
    ),
    (b"a\n128\n", &[("types", "a:int8")], &["line 2", "column 'a'", "int8", "'128'", "cannot hold"]),
    (b"a\n-1\n", &[("types", "a:uint64")], &["line 2", "uint64", "'-1'", "cannot hold"]),
    (b"a\n18446744073709551616\n", &[("types", "a:uint64")], &["uint64", "cannot hold"]),
    (b"a\n\n1.5\n", &[("types", "a:int64")], &["line 3", "expected int64", "'1.5'"]),
    (b"a\n1e39\n", &[("types", "a:float32")], &["float32", "'1e39'", "cannot hold"]),
    (b"a\n1e309\n", &[("types", "a:float64")], &["float64", "cannot hold"]),
    (b"a\n0x10\n", &[("types", "a:float64")], &["float64", "'0x10'"]),
    (b"a\n\"\"\n", &[("types", "a:int64")], &["line 2", "int64", "''"]),
    (b"a\nx\n", &[("types", "a:null")], &["expected null", "'x'"]),
    (b"a\ny\n", &[("types", "a:bool")], &["expected bool", "'y'"]),
    (b"a\n2013-02-29\n", &[("types", "a:date32")], &["date32", "'2013-02-29'"]),
    (b"a\n24:00:00\n", &[("types", "a:time32[s]")], &["time32[s]", "'24:00:00'"]),
    (b"a\n10:00:00.5\n", &[("types", "a:time32[s]")], &["time32[s]", "cannot hold"]),
    (b"a\n2013-01-31T10:00:00.5\n", &[("types", "a:timestamp[s]")], &["timestamp[s]", "cannot hold"]),
    (b"a\n1066-10-14T10:00\n", &[("types", "a:timestamp[ns]")], &["timestamp[ns]", "cannot hold"]),
    (b"a\n2013-01-31T10:00Z\n", &[("types", "a:timestamp[s]")], &["expected timestamp[s]", "Z'"]),
    (b"a\n2013-01-31T10:00\n", &[("types", "a:timestamp[s, UTC]")], &["timestamp[s, UTC]", "'2013"]),
    (b"a\n1\n", &[("types", "b:int8")], &["types", "no column 'b'"]),
    (b"a,a\n1,2\n", &[("types", "a:int8")], &["types", "several columns", "'a'"]),
    (b"a\n1\n", &[("types", "a:int128")], &["types", "'int128'", "uint64"]),
    (b"a\n1\n", &[("types", "a")], &["types", "name:type", "'a'"]),
    (b"a\n1\n", &[("colour", "red")], &["no option 'colour'", "header, delimiter, quote, null, types"]),
    (b"a\n1\n", &[("header", "maybe")], &["'header'", "true or false", "'maybe'"]),
    (b"a\n1\n", &[("delimiter", "::")], &["'delimiter'", "one ASCII character", "'::'"]),
    (b"a\n1\n", &[("delimiter", "e")], &["'delimiter'", "one ASCII character"]),
    (b"a\n1\n", &[("quote", ",")], &["delimiter and quote", "different"]),
    (b"a\n1\n", &[("null", "a,b")], &["'null'", "without delimiters"]),
    (b"a\n1\n", &[("batch_rows", "0")], &["'batch_rows'", "1 to"]),
    (b"a\n1\n", &[("infer_rows", "-1")], &["'infer_rows'", "'-1'"]),
];

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let bench = Bench::new();
    for (text, options, expected) in CASES {
        let shown = String::from_utf8_lossy(text);
        let error = bench.read(text, options).expect_err(&shown);
        for part in *expected {
            assert!(error.contains(part), "{shown:?}: {error:?} does not contain {part:?}");
        }
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
    bench.end();
}

#[test]
fn what_is_lenient_is_meant_so() {
    let bench = Bench::new();
    for (text, options, rows) in [
        (&b"a,b\n1,2"[..], &[][..], 1),
        (b"\xef\xbb\xbfa,b\n1,2\n", &[], 1),
        (b"\n\na,b\r\n1,2\r\n\r\n3,4\r\n\r\n", &[], 2),
        (b"a,b\n\"1\",\"\"\n", &[], 1),
        (b"a\tb\n1\"\t2\n", &[("delimiter", "tab"), ("quote", "none")], 1),
        (b"a,b\n", &[], 0),
        (b"1,2\n3,4\n", &[("header", "false")], 2),
        (b"\n1\n\n", &[("header", "false")], 3),
    ] {
        let read = bench.read(text, options).unwrap();
        assert_eq!(read.rows(), rows, "{:?}", String::from_utf8_lossy(text));
    }
    bench.end();
}

#[test]
fn a_schema_that_does_not_fit_is_named() {
    let bench = Bench::new();
    let schema = |fields: &[(&str, DataType, bool)]| {
        Schema::new(fields.iter().map(|(n, t, nulls)| Field::new(*n, t.clone(), *nulls)).collect::<Vec<_>>())
    };
    let list = DataType::new_list(DataType::Int8, true);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    for (fields, text, expected) in [
        (&[("a", DataType::Int8, false)][..], "a\n\n", &["line 2", "column 'a'", "null", "allows none"][..]),
        (&[("b", DataType::Int8, true)], "a\n1\n", &["column 1", "'b'", "'a'"]),
        (&[("a", DataType::Int8, true)], "a,b\n1,2\n", &["expected 1 columns", "got 2"]),
        (&[("a", list, true)], "a\n1\n", &["column 'a'", "'+l'", "uint64", "cast"]),
        (&[("a", DataType::Binary, true)], "a\n1\n", &["column 'a'", "'z'"]),
        (&[("a", dictionary, true)], "a\n1\n", &["column 'a'", "dictionary", "'c'"]),
    ] {
        let error = bench.read_with(text.as_bytes(), &schema(fields), &[]).unwrap_err();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        }
    }
    let both = bench.read_with(b"a\n1\n", &schema(&[("a", DataType::Int8, true)]), &[("types", "a:int8")]);
    assert!(both.unwrap_err().contains("expected one of them"));
    bench.end();
}

#[test]
fn what_has_no_text_is_refused_with_its_column() {
    let bench = Bench::new();
    let text = |value: &'static str| Arc::new(StringArray::from(vec!["x", value])) as ArrayRef;
    let list = ListArray::from_iter_primitive::<types::Int8Type, _, _>([Some([Some(1)])]);
    let cases: [(ArrayRef, Pairs<'_>, &[&str]); 7] = [
        (Arc::new(list), &[], &["column 'c'", "'+l'", "--columns", "cast"]),
        (Arc::new(BinaryArray::from(vec![&b"x"[..]])), &[], &["column 'c'", "'z'"]),
        (Arc::new(StringViewArray::from(vec!["x"])), &[], &["column 'c'", "'vu'"]),
        (text("a\0b"), &[], &["column 'c'", "row 2", "NUL"]),
        (text("a,b"), &[("quote", "none")], &["column 'c'", "row 2", "quote=none"]),
        (text(""), &[("quote", "none")], &["column 'c'", "row 2", "quote=none"]),
        (Arc::new(Time32SecondArray::from(vec![0, 86_400])), &[], &["column 'c'", "row 2", "time of day"]),
    ];
    for (array, options, expected) in cases {
        let error = bench.write(&[single("c", array)], options).unwrap_err();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not contain {part:?}");
        }
    }
    let unknown = bench.write(&[single("c", text("y"))], &[("types", "c:utf8")]).unwrap_err();
    assert!(
        unknown.contains("writing CSV has no option 'types'; it knows header, delimiter, quote, null"),
        "{unknown}"
    );
    bench.end();
}

/// From within the process contents come unchecked: whoever made them may be wrong.
#[test]
fn offsets_and_indices_that_lie_are_refused_and_not_followed() {
    let bench = Bench::new();
    let values = Arc::new(StringArray::from(vec!["a", "b"]));
    let offsets = |list: Vec<i32>| {
        // SAFETY: not true, as the test wants it; nothing but the plugin under test looks at them.
        let offsets = unsafe { OffsetBuffer::new_unchecked(list.into()) };
        // SAFETY: as above.
        Arc::new(unsafe { StringArray::new_unchecked(offsets, Buffer::from(b"abcdef"), None) }) as ArrayRef
    };
    let indices = |list: Vec<i8>| {
        // SAFETY: as above.
        let array = unsafe {
            DictionaryArray::<types::Int8Type>::new_unchecked(Int8Array::from(list), values.clone())
        };
        Arc::new(array) as ArrayRef
    };
    for (array, row, expected) in [
        (indices(vec![0, 2]), 2, "outside of its dictionary"),
        (indices(vec![0, -1]), 2, "outside of its dictionary"),
        (offsets(vec![0, 5, 2]), 1, "offsets contradict each other"),
        (offsets(vec![0, 1, 1_000_000, 6]), 2, "offsets contradict each other"),
        (offsets(vec![0, -1, 6]), 1, "offsets contradict each other"),
    ] {
        let error = bench.write(&[single("c", array)], &[]).unwrap_err();
        assert!(error.contains(&format!("column 'c', row {row} ")) && error.contains(expected), "{error}");
    }
    bench.end();
}
