//! Tests that the plugin reads the values that it has written.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::*;
use arrow_schema::DataType;
use crossdock_plugin_api::{CallSettings, Device};
use crossdock_test_support::Random;

use crate::csv::fixture::{Fixture, Pairs, Read, Text};
use crate::csv::tables::{ROWS, TEXTS, batch, columns, single};

const DIALECTS: [Pairs<'static>; 4] =
    [&[], &[("delimiter", "tab")], &[("delimiter", ";")], &[("delimiter", ":")]];

#[track_caller]
fn assert_round_trip(fixture: &Fixture, written: &RecordBatch, expected: &RecordBatch, options: Pairs<'_>) {
    let text = fixture.write(std::slice::from_ref(written), options).unwrap();
    let back = fixture.read_with(text.as_bytes(), &expected.schema(), options);
    let back = back.unwrap_or_else(|error| panic!("{options:?}: {error}\n{text}"));
    assert_eq!(back.schema, expected.schema(), "{options:?}");
    assert_eq!(back.batch(), expected, "{options:?}\n{text}");
}

#[test]
fn every_type_round_trips_with_its_schema() {
    let fixture = Fixture::new();
    for options in DIALECTS {
        for (name, array) in columns() {
            let alone = single(&name, array);
            assert_round_trip(&fixture, &alone, &alone, options);
        }
        let all = batch(&columns());
        assert_round_trip(&fixture, &all, &all, options);
    }
    fixture.assert_settled();
}

#[test]
fn slices_are_written_from_their_offset() {
    let fixture = Fixture::new();
    let all = batch(&columns());
    for start in 0..ROWS {
        for length in 1..=ROWS - start {
            let part = all.slice(start, length);
            assert_round_trip(&fixture, &part, &part, &[]);
        }
    }
    fixture.assert_settled();
}

#[test]
fn empty_slice_is_written_as_a_header() {
    let fixture = Fixture::new();
    let none = batch(&columns()).slice(4, 0);
    let text = fixture.write(std::slice::from_ref(&none), &[]).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let back = fixture.read_with(text.as_bytes(), &none.schema(), &[]).unwrap();
    assert_eq!((back.schema, back.batches.len()), (none.schema(), 0));
    fixture.assert_settled();
}

fn floats<T: ArrowPrimitiveType>(read: &Read, column: usize) -> Vec<T::Native> {
    read.batch().column(column).as_primitive::<T>().values().to_vec()
}

#[test]
fn floats_round_trip_bit_exactly() {
    let fixture = Fixture::new();
    let mut random = Random::new(1);
    let mut next = || random.word();
    // Adds decimals with few digits, for which the parser has a separate code path.
    let wide: Vec<f64> = (0..20_000)
        .map(|i| if i % 2 == 0 { f64::from_bits(next()) } else { (next() % 1_000_000) as f64 / 1000.0 })
        .filter(|v| !v.is_nan())
        .collect();
    let table = batch(&[("wide".into(), Arc::new(Float64Array::from(wide.clone())) as ArrayRef)]);
    let text = fixture.write(std::slice::from_ref(&table), &[]).unwrap();
    let back = fixture.read_with(text.as_bytes(), &table.schema(), &[]).unwrap();
    for (actual, wide) in floats::<Float64Type>(&back, 0).iter().zip(&wide) {
        assert_eq!(actual.to_bits(), wide.to_bits(), "{wide:e}");
    }
    drop(back);
    fixture.assert_settled();
}

#[test]
fn empty_texts_are_quoted_and_nulls_are_not() {
    let fixture = Fixture::new();
    let words = || Arc::new(StringArray::from(vec![Some(""), None, Some("NA"), Some("x")]));
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), None, Some(-1), None]));
    let table = batch(&[("w".into(), words() as ArrayRef), ("n".into(), numbers())]);
    let text = fixture.write(std::slice::from_ref(&table), &[]).unwrap();
    assert_eq!(text, "w,n\n\"\",1\n,\nNA,-1\nx,\n");
    fixture.assert_settled();
}

#[test]
fn nulls_of_a_single_column_are_written_as_blank_lines() {
    let fixture = Fixture::new();
    let column = |name: &str| single(name, Arc::new(Int32Array::from(vec![None, Some(1), None, None])));
    for table in [column("n"), column("")] {
        assert_round_trip(&fixture, &table, &table, &[]);
    }
    fixture.assert_settled();
}

#[test]
fn any_column_name_round_trips() {
    let fixture = Fixture::new();
    let texts = TEXTS.iter().flatten().map(|name| name.to_string());
    let columns: Vec<_> =
        texts.chain(["".into()]).map(|n| (n, Arc::new(Int8Array::from(vec![1])) as ArrayRef)).collect();
    let table = batch(&columns);
    assert_round_trip(&fixture, &table, &table, &[]);
    for (name, array) in columns {
        let alone = single(&name, array);
        assert_round_trip(&fixture, &alone, &alone, &[]);
    }
    fixture.assert_settled();
}

#[test]
fn several_batches_are_written_to_one_file() {
    let fixture = Fixture::new();
    let all = batch(&columns());
    let parts = [all.slice(0, 4), all.slice(4, 5)];
    let text = fixture.write(&parts, &[]).unwrap();
    assert_eq!(text, fixture.write(std::slice::from_ref(&all), &[]).unwrap());
    let source = Arc::new(Text { bytes: text.into_bytes(), step: usize::MAX, is_pipe: false });
    let back = fixture.read_as(source, Some(&all.schema()), &[], &CallSettings::new(Device::CPU)).unwrap();
    assert_eq!(*back.batch(), all);
    drop(back);
    fixture.assert_settled();
}

#[test]
fn types_option_sets_the_type_of_each_column() {
    let fixture = Fixture::new();
    let all = batch(&columns());
    let text = fixture.write(std::slice::from_ref(&all), &[]).unwrap();
    let names = "bool,int8,int16,int32,int64,float64,utf8";
    let read = fixture.read(&text, &[("types", names)]).unwrap();
    assert_eq!(read.batch().columns(), all.columns());
    drop(read);
    let read = fixture.read(&text, &[]).unwrap();
    assert!(read.schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8));
    assert_eq!(read.batch().column(5).as_string::<i32>().value(0), "0.0");
    drop(read);
    fixture.assert_settled();
}

#[test]
fn table_is_independent_of_read_sizes() {
    let fixture = Fixture::new();
    let all = batch(&columns());
    let text = fixture.write(std::slice::from_ref(&all), &[]).unwrap();
    for with_returns in [false, true] {
        // Replaces only the line ends of records, because line ends in fields are data.
        let text = if with_returns { text.replace("\"\"\n", "\"\"\r\n") } else { text.clone() };
        for is_pipe in [false, true] {
            for step in [1, 2, 3, 7, 64, 1000] {
                let source = Arc::new(Text { bytes: text.clone().into_bytes(), step, is_pipe });
                let call = CallSettings::new(Device::CPU);
                let back = fixture.read_as(source, Some(&all.schema()), &[], &call).unwrap();
                assert_eq!(*back.batch(), all, "pipe {is_pipe}, step {step}");
            }
        }
    }
    fixture.assert_settled();
}

#[test]
fn texts_longer_than_every_read_window_round_trip() {
    let fixture = Fixture::new();
    let long: String = (0..900_000).map(|i| ["é", "\"", "\n", "abc", ","][i % 5]).collect();
    let table = batch(&[
        ("a".into(), Arc::new(StringArray::from(vec![Some(long.as_str()), None, Some("x")])) as ArrayRef),
        ("b".into(), Arc::new(StringArray::from(vec![Some("y"), Some(long.as_str()), Some(&long)]))),
    ]);
    assert_round_trip(&fixture, &table, &table, &[]);
    fixture.assert_settled();
}
