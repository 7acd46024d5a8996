//! What is written reads back as the same values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::*;
use arrow_schema::DataType;
use crossdock_plugin_api::{CallSettings, Device};
use crossdock_test_support::Random;

use crate::csv::bench::{Bench, Pairs, Read, Text};
use crate::csv::tables::{ROWS, TEXTS, batch, columns, single};

const DIALECTS: [Pairs<'static>; 4] =
    [&[], &[("delimiter", "tab")], &[("delimiter", ";")], &[("delimiter", ":")]];

#[track_caller]
fn assert_comes_back(bench: &Bench, written: &RecordBatch, expected: &RecordBatch, options: Pairs<'_>) {
    let text = bench.write(std::slice::from_ref(written), options).unwrap();
    let back = bench.read_with(text.as_bytes(), &expected.schema(), options);
    let back = back.unwrap_or_else(|error| panic!("{options:?}: {error}\n{text}"));
    assert_eq!(back.schema, expected.schema(), "{options:?}");
    assert_eq!(back.batch(), expected, "{options:?}\n{text}");
}

#[test]
fn every_type_reads_back_as_the_same_values_given_its_schema() {
    let bench = Bench::new();
    for options in DIALECTS {
        for (name, array) in columns() {
            let alone = single(&name, array);
            assert_comes_back(&bench, &alone, &alone, options);
        }
        let all = batch(&columns());
        assert_comes_back(&bench, &all, &all, options);
    }
    bench.end();
}

#[test]
fn slices_are_written_from_their_offset_on() {
    let bench = Bench::new();
    let all = batch(&columns());
    for start in 0..ROWS {
        for length in 1..=ROWS - start {
            let part = all.slice(start, length);
            assert_comes_back(&bench, &part, &part, &[]);
        }
    }
    bench.end();
}

#[test]
fn a_slice_of_no_rows_is_a_header() {
    let bench = Bench::new();
    let none = batch(&columns()).slice(4, 0);
    let text = bench.write(std::slice::from_ref(&none), &[]).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let back = bench.read_with(text.as_bytes(), &none.schema(), &[]).unwrap();
    assert_eq!((back.schema, back.batches.len()), (none.schema(), 0));
    bench.end();
}

fn floats<T: ArrowPrimitiveType>(read: &Read, column: usize) -> Vec<T::Native> {
    read.batch().column(column).as_primitive::<T>().values().to_vec()
}

#[test]
fn floats_of_any_bits_read_back_bit_by_bit() {
    let bench = Bench::new();
    let mut random = Random::new(1);
    let mut next = || random.word();
    // Short decimals too, which take another way through the parser.
    let wide: Vec<f64> = (0..20_000)
        .map(|i| if i % 2 == 0 { f64::from_bits(next()) } else { (next() % 1_000_000) as f64 / 1000.0 })
        .filter(|v| !v.is_nan())
        .collect();
    let table = batch(&[("wide".into(), Arc::new(Float64Array::from(wide.clone())) as ArrayRef)]);
    let text = bench.write(std::slice::from_ref(&table), &[]).unwrap();
    let back = bench.read_with(text.as_bytes(), &table.schema(), &[]).unwrap();
    for (got, wide) in floats::<Float64Type>(&back, 0).iter().zip(&wide) {
        assert_eq!(got.to_bits(), wide.to_bits(), "{wide:e}");
    }
    drop(back);
    bench.end();
}

#[test]
fn a_text_that_looks_like_a_null_is_quoted_and_a_null_is_not() {
    let bench = Bench::new();
    let words = || Arc::new(StringArray::from(vec![Some(""), None, Some("NA"), Some("x")]));
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), None, Some(-1), None]));
    let table = batch(&[("w".into(), words() as ArrayRef), ("n".into(), numbers())]);
    let text = bench.write(std::slice::from_ref(&table), &[]).unwrap();
    assert_eq!(text, "w,n\n\"\",1\n,\nNA,-1\nx,\n");
    bench.end();
}

#[test]
fn nulls_of_a_single_column_are_blank_lines_that_count() {
    let bench = Bench::new();
    let column = |name: &str| single(name, Arc::new(Int32Array::from(vec![None, Some(1), None, None])));
    for table in [column("n"), column("")] {
        assert_comes_back(&bench, &table, &table, &[]);
    }
    bench.end();
}

#[test]
fn names_of_columns_come_back_whatever_they_hold() {
    let bench = Bench::new();
    let texts = TEXTS.iter().flatten().map(|name| name.to_string());
    let columns: Vec<_> =
        texts.chain(["".into()]).map(|n| (n, Arc::new(Int8Array::from(vec![1])) as ArrayRef)).collect();
    let table = batch(&columns);
    assert_comes_back(&bench, &table, &table, &[]);
    for (name, array) in columns {
        let alone = single(&name, array);
        assert_comes_back(&bench, &alone, &alone, &[]);
    }
    bench.end();
}

#[test]
fn several_batches_are_one_file() {
    let bench = Bench::new();
    let all = batch(&columns());
    let parts = [all.slice(0, 4), all.slice(4, 5)];
    let text = bench.write(&parts, &[]).unwrap();
    assert_eq!(text, bench.write(std::slice::from_ref(&all), &[]).unwrap());
    let source = Arc::new(Text { bytes: text.into_bytes(), step: usize::MAX, pipe: false });
    let back = bench.read_as(source, Some(&all.schema()), &[], &CallSettings::new(Device::CPU)).unwrap();
    assert_eq!(*back.batch(), all);
    drop(back);
    bench.end();
}

#[test]
fn the_option_types_names_a_type_for_each_column() {
    let bench = Bench::new();
    let all = batch(&columns());
    let text = bench.write(std::slice::from_ref(&all), &[]).unwrap();
    let names = "bool,int8,int16,int32,int64,float64,utf8";
    let read = bench.read(&text, &[("types", names)]).unwrap();
    assert_eq!(read.batch().columns(), all.columns());
    drop(read);
    let read = bench.read(&text, &[]).unwrap();
    assert!(read.schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8));
    assert_eq!(read.batch().column(5).as_string::<i32>().value(0), "0.0");
    drop(read);
    bench.end();
}

#[test]
fn however_the_source_gives_its_bytes_the_table_is_the_same() {
    let bench = Bench::new();
    let all = batch(&columns());
    let text = bench.write(std::slice::from_ref(&all), &[]).unwrap();
    for with_returns in [false, true] {
        // Line ends of records only: those within fields are data.
        let text = if with_returns { text.replace("\"\"\n", "\"\"\r\n") } else { text.clone() };
        for pipe in [false, true] {
            for step in [1, 2, 3, 7, 64, 1000] {
                let source = Arc::new(Text { bytes: text.clone().into_bytes(), step, pipe });
                let call = CallSettings::new(Device::CPU);
                let back = bench.read_as(source, Some(&all.schema()), &[], &call).unwrap();
                assert_eq!(*back.batch(), all, "pipe {pipe}, step {step}");
            }
        }
    }
    bench.end();
}

#[test]
fn a_long_text_crosses_every_window() {
    let bench = Bench::new();
    let long: String = (0..900_000).map(|i| ["é", "\"", "\n", "abc", ","][i % 5]).collect();
    let table = batch(&[
        ("a".into(), Arc::new(StringArray::from(vec![Some(long.as_str()), None, Some("x")])) as ArrayRef),
        ("b".into(), Arc::new(StringArray::from(vec![Some("y"), Some(long.as_str()), Some(&long)]))),
    ]);
    assert_comes_back(&bench, &table, &table, &[]);
    bench.end();
}
