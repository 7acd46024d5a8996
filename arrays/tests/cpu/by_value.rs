//! Tests the encoding of values and the array builder of the host. arrow-rs is the reference for
//! the equality of values.

use std::sync::Arc;

use crate::common::{Fixture, field_of, samples};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, UnionFields};
use crossdock_arrays::by_value::{self, Builder, HostArray, ValueIndex};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_plugin_api::Code;

fn encoded(fixture: &Fixture, array: &ArrayRef) -> Vec<Vec<u8>> {
    let array = imported(fixture, array);
    ValueIndex::encode(&HostArray::new(&array, &fixture.cpu).unwrap()).unwrap()
}

/// Imports an array and resolves the lengths of its buffers, because view arrays are imported
/// without the lengths of their data buffers.
fn imported(fixture: &Fixture, array: &ArrayRef) -> DeviceArray {
    let mut batch: DeviceBatch = fixture.batch(std::slice::from_ref(array));
    batch.resolve_sizes(&fixture.cpu).unwrap();
    batch.column(0).unwrap().clone()
}

/// Whether value `i` of `a` equals value `j` of `b`. arrow-rs compares the values, except that a
/// null key of a dictionary array equals a key that refers to a null value.
fn same(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    let (a, b) = (a.slice(i, 1), b.slice(j, 1));
    let is_null = |array: &ArrayRef| {
        let of_dictionary = matches!(array.data_type(), DataType::Dictionary(..));
        of_dictionary && array.logical_nulls().is_some_and(|nulls| nulls.is_null(0))
    };
    is_null(&a) && is_null(&b) || a.to_data() == b.to_data()
}

fn assert_encodings_are_equal_iff_values_are(fixture: &Fixture, a: &ArrayRef, b: &ArrayRef) {
    let (of_a, of_b) = (encoded(fixture, a), encoded(fixture, b));
    assert_eq!((of_a.len(), of_b.len()), (a.len(), b.len()));
    for (i, j) in (0..a.len()).flat_map(|i| (0..b.len()).map(move |j| (i, j))) {
        assert_eq!(of_a[i] == of_b[j], same(a, i, b, j), "{} {i} {j}", a.data_type());
    }
}

/// Arrays in which each value differs from the next value in only one part.
fn similar_values() -> Vec<ArrayRef> {
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 1, 2, 1, 1, 2, 2, 1]));
    let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true, true]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "a", "b", "a"]));
    let first: ArrayRef = Arc::new(numbers.as_any().downcast_ref::<Int32Array>().unwrap().slice(0, 4));
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int32, true),
        Field::new("t", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let union = UnionFields::try_new(
        [3, 9],
        [Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int32, true)],
    )
    .unwrap();
    let (a, b): (ArrayRef, ArrayRef) =
        (Arc::new(Int32Array::from(vec![7, 7, 8, 7])), Arc::new(Int32Array::from(vec![7, 8, 8, 7])));
    let ids = ScalarBuffer::from(vec![3i8, 9, 3, 9]);
    let dense = ScalarBuffer::from(vec![2, 1, 0, 3]);
    let ends = PrimitiveArray::<Int32Type>::from_iter_values([2, 3, 7, 9]);
    let dictionary = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0, 1, 2, 3, 1]), texts.clone());
    let sizes = ScalarBuffer::from(vec![2, 2, 1, 2, 3, 0]);
    let starts = ScalarBuffer::from(vec![0, 3, 1, 6, 0, 8]);
    vec![
        Arc::new(ListViewArray::new(item(DataType::Int32), starts, sizes, numbers.clone(), None)),
        Arc::new(FixedSizeListArray::new(item(DataType::Int32), 2, numbers.clone(), None)),
        Arc::new(FixedSizeListArray::new(item(DataType::Int32), 2, numbers.slice(2, 6), None)),
        Arc::new(StructArray::new(fields, vec![first, truths.clone(), texts.clone()], None)),
        Arc::new(UnionArray::try_new(union.clone(), ids.clone(), None, vec![a.clone(), b.clone()]).unwrap()),
        Arc::new(UnionArray::try_new(union, ids, Some(dense), vec![a, b]).unwrap()),
        Arc::new(RunArray::try_new(&ends, &texts).unwrap()),
        Arc::new(RunArray::try_new(&ends, &truths).unwrap()),
        Arc::new(dictionary),
        truths,
        numbers,
        texts,
    ]
}

#[test]
fn encoded_bytes_are_equal_iff_values_are_equal() {
    let fixture = Fixture::new();
    for array in samples::all().iter().chain(&similar_values()) {
        assert_encodings_are_equal_iff_values_are(&fixture, array, array);
        let n = array.len();
        assert_encodings_are_equal_iff_values_are(&fixture, array, &array.slice(1, n - 2));
        assert_encodings_are_equal_iff_values_are(
            &fixture,
            &array.slice(n / 2, n - n / 2),
            &array.slice(2, n - 3),
        );
    }
}

#[test]
fn position_returns_first_duplicate() {
    let mut known = ValueIndex::default();
    for key in [b"a", b"b", b"a", b"c"] {
        known.push(key.to_vec());
    }
    assert_eq!(known.values(), [b"a", b"b", b"a", b"c"].map(|key| key.to_vec()));
    assert_eq!(
        [known.position(b"a"), known.position(b"b"), known.position(b"c")],
        [Some(0), Some(1), Some(3)]
    );
    assert_eq!((known.position(b""), known.position(b"d")), (None, None));
}

/// A list of `n` nulls, for which the input needs no bytes.
fn list_of_nulls(n: usize) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::<i32>::from_lengths([n]);
    Arc::new(ListArray::new(item, offsets, Arc::new(NullArray::new(n)), None))
}

#[test]
fn rejects_list_of_too_many_nulls() {
    let fixture = Fixture::new();
    let of = |n| {
        let array = imported(&fixture, &list_of_nulls(n));
        ValueIndex::encode(&HostArray::new(&array, &fixture.cpu).unwrap()).map(|keys| keys[0].len())
    };
    // The encoding of the list has a validity byte and a length, and the encoding of each null has
    // a validity byte.
    assert_eq!(of(100_000).unwrap(), 1 + 8 + 100_000);
    let error = of((64 << 20) + 1).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert_eq!(error.message(), "a dictionary value of type list<item: null> is longer than 67108864 bytes");
}

#[test]
fn encoded_size_limit_is_inclusive() {
    let fixture = Fixture::new();
    // One list that contains two lists: one with a value of `n` bytes, and an empty one.
    let of = |n: usize| {
        let texts: ArrayRef = Arc::new(BinaryArray::from_iter_values([vec![0u8; n]]));
        let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
        let inner = OffsetBuffer::<i32>::from_lengths([1, 0]);
        let inner: ArrayRef = Arc::new(ListArray::new(item(&texts), inner, texts, None));
        let outer = OffsetBuffer::<i32>::from_lengths([2]);
        let array: ArrayRef = Arc::new(ListArray::new(item(&inner), outer, inner, None));
        let array = imported(&fixture, &array);
        ValueIndex::encode(&HostArray::new(&array, &fixture.cpu).unwrap()).map(|keys| keys[0].len())
    };
    // The encoding has four nested values, each with a validity byte and a length.
    let max = (64 << 20) - 4 * 9;
    assert_eq!(of(max), Ok(64 << 20));
    assert_eq!(of(max + 1).unwrap_err().code(), Code::UNSUPPORTED);
}

#[test]
fn list_of_maximum_length_is_read_element_by_element() {
    let fixture = Fixture::new();
    let none = DeviceArray::empty(&DataType::Int8).unwrap();
    let offsets = fixture.memory.alloc_with(&fixture.cpu, 8, |to| {
        to.copy_from_slice(&[[0i32.to_ne_bytes()], [(64i32 << 20).to_ne_bytes()]].concat().concat());
        Ok(())
    });
    let buffers = vec![None, Some(offsets.unwrap().freeze(&fixture.cpu).unwrap())];
    let list = DataType::new_list(DataType::Int8, true);
    let array = DeviceArray::try_new(list, 1, 0, None, buffers, vec![none], None).unwrap();
    let error = ValueIndex::encode(&HostArray::new(&array, &fixture.cpu).unwrap()).unwrap_err();
    assert!(error.message().ends_with("the array refers to row 0 of a child with 0 rows"), "{error}");
}

#[test]
fn builder_appends_ranges_of_every_type_in_order() {
    let fixture = Fixture::new();
    for array in samples::all().iter().chain(&similar_values()) {
        let (n, original) = (array.len(), imported(&fixture, array));
        let sliced = imported(&fixture, &array.slice(1, n - 1));
        let (whole, rest) = (
            HostArray::new(&original, &fixture.cpu).unwrap(),
            HostArray::new(&sliced, &fixture.cpu).unwrap(),
        );
        let mut builder = Builder::new(array.data_type());
        assert!(builder.is_empty());
        let mut expected = Vec::new();
        for (from, offset, start, len) in [
            (&whole, 0, n - 2, 2),
            (&rest, 1, 0, n - 1),
            (&whole, 0, 1, 0),
            (&whole, 0, n - 1, 1),
            (&rest, 1, 1, n - 2),
        ] {
            builder.append(from, start, len).unwrap_or_else(|e| panic!("{}: {e}", array.data_type()));
            expected.extend((offset + start..).take(len));
        }
        assert_eq!((builder.len(), builder.is_empty()), (expected.len(), false));
        let built = builder.finish(&fixture.cpu).unwrap();
        let built = fixture.export(&built, &field_of(0, array));
        assert_eq!(built.len(), expected.len());
        for (i, j) in expected.into_iter().enumerate() {
            assert!(same(&built, i, array, j), "{}: {i} is not {j}", array.data_type());
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn concatenates_arrays_of_every_type() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        let parts = [imported(&fixture, &array.slice(3, 5)), imported(&fixture, array)];
        let whole = by_value::concat(array.data_type(), &[&parts[0], &parts[1]], &fixture.cpu).unwrap();
        let whole = fixture.export(&whole, &field_of(0, array));
        assert_eq!(whole.len(), 5 + array.len());
        for (i, j) in (3..8).chain(0..array.len()).enumerate() {
            assert!(same(&whole, i, array, j), "{}: {i} is not {j}", array.data_type());
        }
    }
}

#[test]
fn same_buffers_requires_same_memory() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        let one = imported(&fixture, array);
        assert!(by_value::same_buffers(&one, &one.clone()), "{}", array.data_type());
        assert!(!by_value::same_buffers(&one, &one.slice(0, 10).unwrap()), "{}", array.data_type());
        assert!(!by_value::same_buffers(&one, &one.slice(1, 10).unwrap().slice(0, 9).unwrap()));
        let parts = [&one.slice(0, 5).unwrap(), &one.slice(5, 6).unwrap()];
        let copied = by_value::concat(array.data_type(), &parts, &fixture.cpu).unwrap();
        // If the arrays have no memory, `same_buffers` is true.
        if one.buffers().iter().flatten().any(|buffer| buffer.len() != Some(0)) {
            assert!(!by_value::same_buffers(&one, &copied), "{}", array.data_type());
        }
    }
}

#[test]
fn rejects_range_outside_array() {
    let fixture = Fixture::new();
    let array = imported(&fixture, &samples::all()[2]);
    let view = HostArray::new(&array, &fixture.cpu).unwrap();
    for (start, len) in [(0, 12), (11, 1), (12, 1), (usize::MAX, 1), (1, usize::MAX)] {
        let error = Builder::new(array.data_type()).append(&view, start, len).unwrap_err();
        assert!(error.message().contains("lie outside the 11"), "{start} {len}: {error}");
    }
    Builder::new(array.data_type()).append(&view, 11, 0).unwrap();
}

#[test]
fn rejects_more_values_than_maximum() {
    let fixture = Fixture::new();
    let max = 1 << 30;
    let nulls = imported(&fixture, &(Arc::new(NullArray::new(max + 1)) as ArrayRef));
    let view = HostArray::new(&nulls, &fixture.cpu).unwrap();
    let mut builder = Builder::new(&DataType::Null);
    builder.append(&view, 0, max).unwrap();
    let error = builder.append(&view, 0, 1).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert_eq!(error.message(), "cannot concatenate dictionaries of more than 1073741824 values");
}
