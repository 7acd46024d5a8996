//! Values of every type as keys, and arrays that are put together range by range; arrow-rs says what is equal.

use std::sync::Arc;

use crate::common::{Dock, field_of, samples};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, UnionFields};
use crossdock_arrays::by_value::{self, Builder, HostArray, Keys};
use crossdock_arrays::{DeviceArray, DeviceBatch};
use crossdock_plugin_api::Code;

fn keys(dock: &Dock, array: &ArrayRef) -> Vec<Vec<u8>> {
    let array = imported(dock, array);
    Keys::of(&HostArray::new(&array, &dock.cpu).unwrap()).unwrap()
}

/// With the lengths of its buffers, which views need.
fn imported(dock: &Dock, array: &ArrayRef) -> DeviceArray {
    let mut batch: DeviceBatch = dock.batch(std::slice::from_ref(array));
    batch.resolve_sizes(&dock.cpu).unwrap();
    batch.column(0).unwrap().clone()
}

/// Whether value `i` of one is value `j` of the other, in arrow-rs' eyes; but a key that is null and the key of a null are one
/// value.
fn same(a: &ArrayRef, i: usize, b: &ArrayRef, j: usize) -> bool {
    let (a, b) = (a.slice(i, 1), b.slice(j, 1));
    let is_null = |array: &ArrayRef| {
        let of_dictionary = matches!(array.data_type(), DataType::Dictionary(..));
        of_dictionary && array.logical_nulls().is_some_and(|nulls| nulls.is_null(0))
    };
    is_null(&a) && is_null(&b) || a.to_data() == b.to_data()
}

fn assert_keys_tell_what_is_equal(dock: &Dock, a: &ArrayRef, b: &ArrayRef) {
    let (of_a, of_b) = (keys(dock, a), keys(dock, b));
    assert_eq!((of_a.len(), of_b.len()), (a.len(), b.len()));
    for (i, j) in (0..a.len()).flat_map(|i| (0..b.len()).map(move |j| (i, j))) {
        assert_eq!(of_a[i] == of_b[j], same(a, i, b, j), "{} {i} {j}", a.data_type());
    }
}

/// What differs from its neighbours in one part only, whichever that is.
fn near() -> Vec<ArrayRef> {
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
fn two_values_of_any_type_have_one_key_where_they_are_equal() {
    let dock = Dock::new();
    for array in samples::all().iter().chain(&near()) {
        assert_keys_tell_what_is_equal(&dock, array, array);
        let n = array.len();
        assert_keys_tell_what_is_equal(&dock, array, &array.slice(1, n - 2));
        assert_keys_tell_what_is_equal(&dock, &array.slice(n / 2, n - n / 2), &array.slice(2, n - 3));
    }
}

#[test]
fn keys_are_found_where_the_first_of_their_kind_stands() {
    let mut known = Keys::default();
    for key in [b"a", b"b", b"a", b"c"] {
        known.push(key.to_vec());
    }
    assert_eq!(known.all(), [b"a", b"b", b"a", b"c"].map(|key| key.to_vec()));
    assert_eq!([known.find(b"a"), known.find(b"b"), known.find(b"c")], [Some(0), Some(1), Some(3)]);
    assert_eq!((known.find(b""), known.find(b"d")), (None, None));
}

/// Values of no bytes, of which one may have as many as it likes.
fn list_of_nulls(n: usize) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::<i32>::from_lengths([n]);
    Arc::new(ListArray::new(item, offsets, Arc::new(NullArray::new(n)), None))
}

#[test]
fn a_value_may_be_long_and_not_endless() {
    let dock = Dock::new();
    let of = |n| {
        let array = imported(&dock, &list_of_nulls(n));
        Keys::of(&HostArray::new(&array, &dock.cpu).unwrap()).map(|keys| keys[0].len())
    };
    // A mark and a length, and a mark for each null.
    assert_eq!(of(100_000).unwrap(), 1 + 8 + 100_000);
    let error = of((64 << 20) + 1).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert_eq!(error.message(), "a dictionary value of type List(Null) has more than 67108864 bytes");
}

#[test]
fn the_longest_value_is_not_too_long_and_one_byte_more_is() {
    let dock = Dock::new();
    // Two lists in one: of a value of `n` bytes, and of none.
    let of = |n: usize| {
        let texts: ArrayRef = Arc::new(BinaryArray::from_iter_values([vec![0u8; n]]));
        let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
        let inner = OffsetBuffer::<i32>::from_lengths([1, 0]);
        let inner: ArrayRef = Arc::new(ListArray::new(item(&texts), inner, texts, None));
        let outer = OffsetBuffer::<i32>::from_lengths([2]);
        let array: ArrayRef = Arc::new(ListArray::new(item(&inner), outer, inner, None));
        let array = imported(&dock, &array);
        Keys::of(&HostArray::new(&array, &dock.cpu).unwrap()).map(|keys| keys[0].len())
    };
    // Four parts, each with a mark and a length.
    let most = (64 << 20) - 4 * 9;
    assert_eq!(of(most), Ok(64 << 20));
    assert_eq!(of(most + 1).unwrap_err().code(), Code::UNSUPPORTED);
}

#[test]
fn as_many_parts_as_there_may_be_are_looked_for() {
    let dock = Dock::new();
    let none = DeviceArray::empty(&DataType::Int8).unwrap();
    let offsets = dock.memory.alloc_with(&dock.cpu, 8, |to| {
        to.copy_from_slice(&[[0i32.to_ne_bytes()], [(64i32 << 20).to_ne_bytes()]].concat().concat());
        Ok(())
    });
    let buffers = vec![None, Some(offsets.unwrap().freeze(&dock.cpu).unwrap())];
    let list = DataType::new_list(DataType::Int8, true);
    let array = DeviceArray::try_new(list, 1, 0, None, buffers, vec![none], None).unwrap();
    let error = Keys::of(&HostArray::new(&array, &dock.cpu).unwrap()).unwrap_err();
    assert!(error.message().ends_with("it points at row 0 of 0"), "{error}");
}

#[test]
fn ranges_of_every_type_are_put_together_in_their_order() {
    let dock = Dock::new();
    for array in samples::all().iter().chain(&near()) {
        let (n, array_) = (array.len(), imported(&dock, array));
        let sliced = imported(&dock, &array.slice(1, n - 1));
        let (whole, rest) =
            (HostArray::new(&array_, &dock.cpu).unwrap(), HostArray::new(&sliced, &dock.cpu).unwrap());
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
        let built = builder.finish(&dock.cpu).unwrap();
        let built = dock.export(&built, &field_of(0, array));
        assert_eq!(built.len(), expected.len());
        for (i, j) in expected.into_iter().enumerate() {
            assert!(same(&built, i, array, j), "{}: {i} is not {j}", array.data_type());
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn arrays_of_every_type_are_one_after_the_other() {
    let dock = Dock::new();
    for array in &samples::all() {
        let parts = [imported(&dock, &array.slice(3, 5)), imported(&dock, array)];
        let whole = by_value::concat(array.data_type(), &[&parts[0], &parts[1]], &dock.cpu).unwrap();
        let whole = dock.export(&whole, &field_of(0, array));
        assert_eq!(whole.len(), 5 + array.len());
        for (i, j) in (3..8).chain(0..array.len()).enumerate() {
            assert!(same(&whole, i, array, j), "{}: {i} is not {j}", array.data_type());
        }
    }
}

#[test]
fn only_arrays_over_the_same_memory_are_the_same_for_certain() {
    let dock = Dock::new();
    for array in &samples::all() {
        let one = imported(&dock, array);
        assert!(by_value::same_buffers(&one, &one.clone()), "{}", array.data_type());
        assert!(!by_value::same_buffers(&one, &one.slice(0, 10).unwrap()), "{}", array.data_type());
        assert!(!by_value::same_buffers(&one, &one.slice(1, 10).unwrap().slice(0, 9).unwrap()));
        let parts = [&one.slice(0, 5).unwrap(), &one.slice(5, 6).unwrap()];
        let copied = by_value::concat(array.data_type(), &parts, &dock.cpu).unwrap();
        // Where there is no memory, none differs.
        if one.buffers().iter().flatten().any(|buffer| buffer.len() != Some(0)) {
            assert!(!by_value::same_buffers(&one, &copied), "{}", array.data_type());
        }
    }
}

#[test]
fn a_range_that_lies_outside_is_refused() {
    let dock = Dock::new();
    let array = imported(&dock, &samples::all()[2]);
    let view = HostArray::new(&array, &dock.cpu).unwrap();
    for (start, len) in [(0, 12), (11, 1), (12, 1), (usize::MAX, 1), (1, usize::MAX)] {
        let error = Builder::new(array.data_type()).append(&view, start, len).unwrap_err();
        assert!(error.message().contains("lie outside of its 11"), "{start} {len}: {error}");
    }
    Builder::new(array.data_type()).append(&view, 11, 0).unwrap();
}

#[test]
fn more_values_than_a_bit_each_could_be_kept_for_are_refused() {
    let dock = Dock::new();
    let most = 1 << 30;
    let nulls = imported(&dock, &(Arc::new(NullArray::new(most + 1)) as ArrayRef));
    let view = HostArray::new(&nulls, &dock.cpu).unwrap();
    let mut builder = Builder::new(&DataType::Null);
    builder.append(&view, 0, most).unwrap();
    let error = builder.append(&view, 0, 1).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert_eq!(error.message(), "more than 1073741824 values of a dictionary cannot be joined");
}
