//! Tests taking rows, expanding runs and gathering lists of every supported type on every device.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int32Array, Int64Array, ListArray, MapArray, StructArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};
use crossdock_arrays::take::{InvalidLists, can_take, expand_runs, gather, take};
use crossdock_arrays::{DeviceArray, DeviceBatch, Level, first_difference, validate};
use crossdock_kernels::{IntType, Integers, Lists};
use crossdock_memory::Stream;
use crossdock_test_support::devices;

fn item(array: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", array.data_type().clone(), true))
}

fn nulls(n: usize) -> Option<NullBuffer> {
    Some(NullBuffer::from_iter((0..n).map(|i| i % 4 != 2)))
}

/// Six lists whose elements are the values of an array of 11 values. Some of the lists are null or
/// empty.
fn list_of(array: &ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![1, 3, 3, 4, 8, 8, 11]));
    Arc::new(ListArray::new(item(array), offsets, array.clone(), nulls(6)))
}

fn pairs_of(array: &ArrayRef) -> ArrayRef {
    let n = (array.len() - 1) / 2;
    Arc::new(FixedSizeListArray::new(item(array), 2, array.slice(1, 2 * n), nulls(n)))
}

fn struct_of(arrays: &[ArrayRef]) -> ArrayRef {
    let n = arrays.iter().map(|array| array.len()).min().unwrap();
    let arrays: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(array.len() - n, n)).collect();
    let fields =
        arrays.iter().enumerate().map(|(i, a)| Field::new(format!("f{i}"), a.data_type().clone(), true));
    Arc::new(StructArray::new(fields.collect(), arrays.clone(), nulls(n)))
}

fn map_to(array: &ArrayRef) -> ArrayRef {
    let keys: ArrayRef = Arc::new(UInt16Array::from_iter_values(0..array.len() as u16));
    let fields = Fields::from(vec![
        Field::new("keys", DataType::UInt16, false),
        Field::new("values", array.data_type().clone(), true),
    ]);
    let entries = StructArray::new(fields.clone(), vec![keys, array.clone()], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 4, 4, 5, 11]));
    Arc::new(MapArray::new(field, offsets, entries, nulls(4), false))
}

/// All sample arrays whose rows can be taken, and nested arrays of them.
fn all() -> Vec<ArrayRef> {
    let plain: Vec<ArrayRef> =
        samples::all().into_iter().filter(|array| can_take(array.data_type())).collect();
    assert!(plain.len() > 30);
    let few = |array: &ArrayRef| {
        use DataType::*;
        matches!(
            array.data_type(),
            Null | Boolean | Int8 | Int64 | Utf8View | Decimal128(..) | Decimal256(..)
        )
    };
    let mut all = plain.clone();
    for array in plain.iter().filter(|array| few(array)) {
        let lists = list_of(array);
        let pairs = pairs_of(array);
        let row = struct_of(&[array.clone(), lists.clone(), pairs.clone()]);
        let longer: ArrayRef = struct_of(&[array.clone(), array.clone()]);
        all.extend([
            pairs_of(&pairs_of(&longer)),
            list_of(&longer),
            map_to(array),
            pairs_of(&list_of(&longer)).slice(1, 1),
            lists,
            pairs,
            row,
        ]);
    }
    all.push(struct_of(&[Arc::new(UInt8Array::from(vec![1, 2, 3]))]));
    all
}

fn alone(array: &DeviceArray) -> DeviceBatch {
    let field = Field::new("a", array.data_type().clone(), true);
    DeviceBatch::try_new(Arc::new(arrow_schema::Schema::new(vec![field])), array.len(), vec![array.clone()])
        .unwrap()
}

fn on_device(fixture: &Fixture, array: ArrayRef, stream: &Stream) -> DeviceArray {
    let batch = fixture.batch(&[array]).move_to(stream, stream.device()).unwrap();
    batch.column(0).unwrap().clone()
}

/// Asserts that each row of `got` equals the row of `values` at the expected index. If no index is
/// expected, the row of `got` must be null.
fn assert_rows(got: &DeviceArray, values: &DeviceArray, rows: &[Option<usize>], stream: &Stream, what: &str) {
    assert_eq!(got.len(), rows.len(), "{what}");
    assert!(got.data_type().equals_datatype(values.data_type()), "{what}");
    validate(&alone(got), Level::Full, stream).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (i, row) in rows.iter().enumerate() {
        let one = got.slice(i, 1).unwrap();
        match row {
            Some(row) => {
                let expected = alone(&values.slice(*row, 1).unwrap());
                assert_eq!(first_difference(&expected, &alone(&one), stream).unwrap(), None, "{what}: {i}");
            }
            None => assert_eq!(one.count_nulls(stream).unwrap(), 1, "{what}: {i}"),
        }
    }
}

#[test]
fn take_returns_requested_rows_of_every_supported_type() {
    let fixture = Fixture::new();
    for (array, &device) in all().iter().flat_map(|array| devices().iter().map(move |device| (array, device)))
    {
        let stream = fixture.host.stream(device);
        let whole = on_device(&fixture, array.clone(), &stream);
        for (from, n) in [(0, array.len()), (1, array.len() - 1), (array.len() - 1, 1)] {
            if n == 0 {
                continue;
            }
            let values = whole.slice(from, n).unwrap();
            // A row with a null code has no expected value.
            let rows: Vec<Option<usize>> = (0..19).map(|i| (i % 5 != 1).then_some(i * 7 % n)).collect();
            let codes: ArrayRef =
                Arc::new(UInt16Array::from_iter(rows.iter().map(|row| row.map(|row| row as u16))));
            let codes = on_device(&fixture, codes, &stream);
            let what = format!("{} from {from} on {device}", array.data_type());
            let got = take(&stream, &values, &codes).unwrap().unwrap();
            assert_rows(&got, &values, &rows, &stream, &what);
            let got = take(&stream, &values, &codes.slice(3, 9).unwrap()).unwrap().unwrap();
            assert_rows(&got, &values, &rows[3..12], &stream, &what);
            let got = take(&stream, &values, &codes.slice(3, 0).unwrap()).unwrap().unwrap();
            assert_rows(&got, &values, &[], &stream, &what);
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn expands_runs_of_every_supported_type() {
    let fixture = Fixture::new();
    for (array, &device) in all().iter().flat_map(|array| devices().iter().map(move |device| (array, device)))
    {
        let stream = fixture.host.stream(device);
        let values = on_device(&fixture, array.slice(0, array.len().min(4)), &stream);
        let ends: Vec<u32> = (1..=values.len() as u32).map(|i| i * i).collect();
        let rows: Vec<Option<usize>> =
            (1..*ends.last().unwrap()).map(|place| Some(ends.partition_point(|end| *end <= place))).collect();
        let ends = on_device(&fixture, Arc::new(UInt32Array::from(ends)), &stream);
        let got = expand_runs(&stream, &values, &ends, 1, rows.len()).unwrap().unwrap();
        assert_rows(&got, &values, &rows, &stream, &format!("{} on {device}", array.data_type()));
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn take_returns_index_of_first_invalid_non_null_code() {
    let fixture = Fixture::new();
    for (array, &device) in all().iter().flat_map(|array| devices().iter().map(move |device| (array, device)))
    {
        let stream = fixture.host.stream(device);
        let values = on_device(&fixture, array.clone(), &stream);
        let codes: ArrayRef = Arc::new(UInt64Array::from(vec![0, u64::MAX, array.len() as u64]));
        let codes = on_device(&fixture, codes, &stream);
        assert_eq!(
            take(&stream, &values, &codes).unwrap().unwrap_err(),
            1,
            "{} on {device}",
            array.data_type()
        );
        let none = on_device(&fixture, array.slice(0, 0), &stream);
        let nulls: ArrayRef = Arc::new(UInt8Array::from(vec![None, None]));
        let got = take(&stream, &none, &on_device(&fixture, nulls, &stream)).unwrap().unwrap();
        assert_rows(
            &got,
            &none,
            &[None, None],
            &stream,
            &format!("none of {} on {device}", array.data_type()),
        );
    }
    fixture.host.assert_nothing_leaked();
}

fn numbers(array: &DeviceArray, width_bytes: usize) -> Integers<'_> {
    let buffer = array.buffers()[1].as_ref().unwrap();
    let of = IntType { width_bytes, signed: true };
    Integers { buffer, at: array.offset() * width_bytes, len: array.len(), of }
}

#[test]
fn gathers_lists_and_shares_contiguous_elements() {
    let fixture = Fixture::new();
    let whole: ArrayRef = Arc::new(Int32Array::from_iter((0..100).map(|i| (i % 7 != 3).then_some(i))));
    for (begins, sizes) in
        [([5, 5, 0, 99, 40, 100], [3, 0, 2, 1, 60, 0]), ([0, 3, 77, 3, 5, 0], [3, 0, 0, 2, 1, 0])]
    {
        let moved = begins[0] != 0;
        for &device in devices() {
            let stream = fixture.host.stream(device);
            let elements = on_device(&fixture, whole.clone(), &stream);
            let [begins_array, sizes_array] =
                [begins, sizes].map(|n| on_device(&fixture, Arc::new(Int64Array::from(n.to_vec())), &stream));
            let lists = |begins, sizes| Lists {
                begins,
                ends_or_sizes: sizes,
                has_ends: false,
                validity: None,
                elements: 100,
            };
            let lists = lists(numbers(&begins_array, 8), numbers(&sizes_array, 8));
            let (_, got) = gather(&stream, lists, &elements).unwrap().unwrap();
            let rows = begins.iter().zip(sizes).flat_map(|(begin, size)| *begin..begin + size);
            let rows: Vec<Option<usize>> = rows.map(|row| Some(row as usize)).collect();
            assert_rows(&got, &elements, &rows, &stream, &format!("{device}"));
            let address = |array: &DeviceArray| array.buffers()[1].as_ref().unwrap().address();
            assert_eq!(address(&got) != address(&elements), moved, "{device}");
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn gather_rejects_lists_out_of_range_and_too_many_elements() {
    let fixture = Fixture::new();
    let max = i64::MAX;
    for (begins, sizes, expected) in [
        ([0, 5, 0], [10, 6, 11], InvalidLists::Outside(1)),
        ([0, -1, 0], [10, 1, 1], InvalidLists::Outside(1)),
        ([0, 5, 5], [10, 1, -1], InvalidLists::Outside(2)),
        ([max, 0, 0], [max, 1, 1], InvalidLists::Outside(0)),
    ] {
        assert_gather_error(&fixture, [begins, sizes], 10, expected);
    }
    let half = 1i64 << 30;
    assert_gather_error(&fixture, [[0, 0, 0], [half, half, 0]], half as usize, InvalidLists::TooMany);
    assert_gather_error(&fixture, [[0, 0, 0], [max, max, max]], max as usize, InvalidLists::TooMany);
    fixture.host.assert_nothing_leaked();
}

/// Asserts that gathering fails before it allocates memory for the elements.
fn assert_gather_error(fixture: &Fixture, lists: [[i64; 3]; 2], elements: usize, expected: InvalidLists) {
    for &device in devices() {
        let stream = fixture.host.stream(device);
        let nothing = DeviceArray::try_new(DataType::Null, elements, 0, None, vec![], vec![], None).unwrap();
        let [begins, sizes] =
            lists.map(|n| on_device(fixture, Arc::new(Int64Array::from(n.to_vec())), &stream));
        let (begins, rest) = (numbers(&begins, 8), numbers(&sizes, 8));
        let lists = Lists { begins, ends_or_sizes: rest, has_ends: false, validity: None, elements };
        assert_eq!(gather(&stream, lists, &nothing).unwrap().unwrap_err(), expected, "{device}");
    }
}

#[test]
fn rejects_malformed_offsets_of_lists() {
    let fixture = Fixture::new();
    for &device in devices() {
        for offsets in [[0, 20, 11], [5, 3, 11], [-1, 3, 11], [0, i32::MAX, 11]] {
            let stream = fixture.host.stream(device);
            let elements = on_device(&fixture, Arc::new(Int32Array::from(vec![7; 11])), &stream);
            let offsets = on_device(&fixture, Arc::new(Int32Array::from(offsets.to_vec())), &stream);
            let buffers = vec![None, offsets.buffers()[1].clone()];
            let field = Arc::new(Field::new("item", DataType::Int32, true));
            let lists =
                DeviceArray::try_new(DataType::List(field), 2, 0, Some(0), buffers, vec![elements], None)
                    .unwrap();
            let codes = on_device(&fixture, Arc::new(UInt8Array::from(vec![1, 0])), &stream);
            let error = take(&stream, &lists, &codes).unwrap_err();
            assert!(error.message().contains("the offsets of lists with 11 elements"), "{device}: {error}");
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn null_lists_have_no_elements() {
    let fixture = Fixture::new();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7; 11]));
    let lists = list_of(&numbers);
    for &device in devices() {
        let stream = fixture.host.stream(device);
        // Some rows have a null code, and other rows have a null value.
        let codes: ArrayRef = Arc::new(UInt8Array::from(vec![None, Some(2), None]));
        let codes = on_device(&fixture, codes, &stream);
        let got =
            take(&stream, &on_device(&fixture, struct_of(std::slice::from_ref(&lists)), &stream), &codes)
                .unwrap()
                .unwrap();
        assert_eq!(got.children()[0].children()[0].len(), 0, "{device}");
        let pairs = on_device(&fixture, pairs_of(&lists.slice(1, 5)), &stream);
        let none: ArrayRef = Arc::new(UInt8Array::from(vec![None, None]));
        let got = take(&stream, &pairs, &on_device(&fixture, none, &stream)).unwrap().unwrap();
        assert_eq!(got.children()[0].children()[0].len(), 0, "{device}");
    }
    fixture.host.assert_nothing_leaked();
}
