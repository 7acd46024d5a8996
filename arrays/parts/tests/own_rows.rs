//! Tests that slices are reduced to their own rows, with arrow-rs as the reference.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListViewBuilder, StringViewBuilder};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RunArray, StringArray, StructArray, UnionArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, UnionFields};
use common::{Fixture, field_of, samples};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_parts::{buffers, own_rows};

/// Rows of the large arrays.
const ROWS: usize = 20_000;
/// The bytes that a slice of 100 rows may have.
const MAX_BYTES: u64 = 40_000;

fn text(i: usize) -> String {
    format!("a text that is longer than a view: {i}")
}

fn views() -> ArrayRef {
    let mut builder = StringViewBuilder::new().with_fixed_block_size(8 << 10);
    for i in 0..ROWS {
        match i % 3 {
            0 => builder.append_value(text(i)),
            1 => builder.append_null(),
            _ => builder.append_value("short"),
        }
    }
    Arc::new(builder.finish())
}

fn list_views() -> ArrayRef {
    let mut builder = ListViewBuilder::new(Int32Builder::new());
    for i in 0..ROWS as i32 {
        match i % 3 {
            0 => builder.append_value([Some(i), None, Some(-i)]),
            1 => builder.append_null(),
            _ => builder.append_value([]),
        }
    }
    Arc::new(builder.finish())
}

fn dense_union() -> ArrayRef {
    let numbers = Int64Array::from_iter_values((0..ROWS as i64 / 2).map(|i| i * 3));
    let texts = StringArray::from_iter_values((0..ROWS / 2).map(text));
    let fields = [(3, DataType::Int64), (9, DataType::Utf8)];
    let fields: UnionFields =
        fields.map(|(id, of)| (id, Arc::new(Field::new(format!("{id}"), of, true)))).into_iter().collect();
    let ids: ScalarBuffer<i8> = (0..ROWS).map(|i| if i % 2 == 0 { 3 } else { 9 }).collect();
    let offsets: ScalarBuffer<i32> = (0..ROWS as i32).map(|i| i / 2).collect();
    let children: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
    Arc::new(UnionArray::try_new(fields, ids, Some(offsets), children).unwrap())
}

fn runs() -> ArrayRef {
    let ends = Int32Array::from_iter_values((1..=ROWS as i32 / 2).map(|i| i * 2));
    let values = StringArray::from_iter_values((0..ROWS / 2).map(text));
    Arc::new(RunArray::try_new(&ends, &values).unwrap())
}

fn large() -> Vec<ArrayRef> {
    let plain = [views(), list_views(), dense_union(), runs()];
    let fields: Vec<Field> = plain.iter().enumerate().map(|(i, array)| field_of(i, array)).collect();
    let nested = StructArray::new(fields.into(), plain.to_vec(), None);
    plain.into_iter().chain([Arc::new(nested) as ArrayRef]).collect()
}

#[test]
fn slices_of_large_arrays_have_only_their_own_rows() {
    let fixture = Fixture::new();
    for array in large() {
        let batch = fixture.batch(std::slice::from_ref(&array));
        let addresses = |batch: &DeviceBatch| -> Vec<u64> {
            buffers(batch.columns()).iter().map(|buffer| buffer.address()).collect()
        };
        let halves = [(0, ROWS / 2), (ROWS / 2, ROWS / 2)].map(|(at, n)| batch.slice(at, n).unwrap());
        for whole in [vec![batch.clone()], halves.to_vec()] {
            let own = own_rows(whole.clone(), &fixture.cpu).unwrap();
            for (own, batch) in own.iter().zip(&whole) {
                let of = array.data_type();
                // The runs of a slice cannot be recognised by its length.
                assert!(addresses(own) == addresses(batch) || whole.len() == 2, "{of} was copied");
                assert_eq!(first_difference(own, batch, &fixture.cpu).unwrap(), None);
            }
        }
        for (offset, len) in [(0, 100), (777, 100), (ROWS - 100, 100), (ROWS / 2, 1), (5, 0)] {
            let own = own_rows(vec![batch.slice(offset, len).unwrap()], &fixture.cpu).unwrap().remove(0);
            let exported = fixture.export(&own.columns()[0], &field_of(0, &array));
            assert_eq!(&exported, &array.slice(offset, len), "{} {offset} {len}", array.data_type());
            let bytes = own.buffer_bytes();
            let n_columns = if matches!(array.data_type(), DataType::Struct(_)) { 4 } else { 1 };
            assert!(bytes <= n_columns * MAX_BYTES, "{} {offset} {len}: {bytes} bytes", array.data_type());
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn slices_of_every_type_keep_their_values() {
    let fixture = Fixture::new();
    for (i, array) in samples::all().iter().enumerate() {
        let batch = fixture.batch(std::slice::from_ref(array));
        for (offset, len) in [(0, 11), (0, 0), (1, 10), (3, 5), (9, 2), (0, 4), (10, 1)] {
            let own = own_rows(vec![batch.slice(offset, len).unwrap()], &fixture.cpu).unwrap().remove(0);
            let exported = fixture.export(&own.columns()[0], &field_of(i, array));
            assert_eq!(&exported, &array.slice(offset, len), "{} {offset} {len}", array.data_type());
        }
    }
    fixture.host.assert_nothing_leaked();
}
