//! Tests the formatting of batches.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::{ArrayRef, Float64Array, Int8Array, StringArray, StructArray, TimestampSecondArray};
use arrow_schema::{DataType, Field};
use crossdock_arrays::{format_batch, json_rows};
use crossdock_test_support::devices;

#[test]
fn formats_batch_as_table_on_any_device() {
    let fixture = Fixture::new();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("one"), None, Some("a\nb")])),
        Arc::new(Float64Array::from(vec![1.5, -0.0, f64::NAN])),
        Arc::new(TimestampSecondArray::from(vec![0, 86_399, -1])),
    ];
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = fixture.batch(&columns).move_to(&stream, device).unwrap();
        let expected = "\
a       b       c
string  double  timestamp[s]
one     1.5     1970-01-01T00:00:00
null    -0      1970-01-01T23:59:59
... 1 more rows
";
        assert_eq!(format_batch(&batch, 2, &stream).unwrap(), expected);
        assert!(format_batch(&batch, 9, &stream).unwrap().contains("a\u{fffd}b"));
    }
}

#[test]
fn formats_every_type() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        let text = format_batch(&fixture.batch(std::slice::from_ref(array)), 20, &fixture.cpu).unwrap();
        assert_eq!(text.lines().count(), 2 + array.len(), "{text}");
        assert!(!text.contains("malformed"), "{text}");
    }
}

#[test]
fn formats_structs_with_field_names() {
    let fixture = Fixture::new();
    let fields = [Field::new("n", DataType::Int8, true), Field::new("text", DataType::Utf8, true)];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec![Some("a"), Some("b")])),
    ];
    let array: ArrayRef = Arc::new(StructArray::new(fields.to_vec().into(), columns, None));
    let text = format_batch(&fixture.batch(&[array]), 9, &fixture.cpu).unwrap();
    let rows: Vec<_> = text.lines().skip(2).collect();
    assert_eq!(rows, ["{n: 1, text: a}", "{n: null, text: b}"]);
}

#[test]
fn formats_rows_as_json_on_any_device() {
    let fixture = Fixture::new();
    let point = StructArray::new(
        vec![Field::new("n", DataType::Int8, true)].into(),
        vec![Arc::new(Int8Array::from(vec![Some(-1), None, Some(2)]))],
        None,
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("a\"\n"), None, Some("")])),
        Arc::new(Float64Array::from(vec![1.5, f64::NAN, -0.0])),
        Arc::new(TimestampSecondArray::from(vec![0, 86_399, -1])),
        Arc::new(point),
    ];
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = fixture.batch(&columns).move_to(&stream, device).unwrap().slice(0, 3).unwrap();
        let rows = json_rows(&batch, 2, &stream).unwrap();
        assert_eq!(
            rows,
            [
                r#"{"a":"a\"\n","b":1.5,"c":"1970-01-01T00:00:00","d":{"n":-1}}"#,
                r#"{"a":null,"b":"NaN","c":"1970-01-01T23:59:59","d":{"n":null}}"#,
            ]
        );
        assert_eq!(json_rows(&batch, 9, &stream).unwrap().len(), 3);
    }
}
