//! Property tests: any slice of any batch keeps its values when it is exported, imported, and moved
//! to a device and back.

use std::sync::Arc;

use crate::common::Fixture;
use arrow_array::builder::{Int16Builder, StringBuilder};
use arrow_array::*;
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, UnionFields};
use crossdock_arrays::{Level, export_batch, first_difference, import_batch, validate};
use crossdock_memory::Device;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// The validity of `n` values, in a bitmap whose first bit is at any position in a byte.
fn nulls(n: usize) -> BoxedStrategy<Option<NullBuffer>> {
    let some = (proptest::collection::vec(any::<u8>(), n / 8 + 9), 0..64usize)
        .prop_map(move |(bytes, first)| Some(NullBuffer::new(BooleanBuffer::new(bytes.into(), first, n))));
    prop_oneof![1 => Just(None), 3 => some].boxed()
}

fn leaf(n: usize) -> BoxedStrategy<ArrayRef> {
    let ints = (proptest::collection::vec(any::<i64>(), n), nulls(n))
        .prop_map(|(v, nulls)| Arc::new(Int64Array::new(v.into(), nulls)) as ArrayRef);
    let bools = (proptest::collection::vec(any::<u8>(), n / 8 + 9), 0..64usize, nulls(n)).prop_map(
        move |(bytes, first, nulls)| {
            Arc::new(BooleanArray::new(BooleanBuffer::new(bytes.into(), first, n), nulls)) as ArrayRef
        },
    );
    let text = || proptest::collection::vec(proptest::option::of("[a-zö日]{0,20}"), n);
    let strings = text().prop_map(|v| Arc::new(StringArray::from(v)) as ArrayRef);
    let views = text().prop_map(|v| Arc::new(StringViewArray::from_iter(v)) as ArrayRef);
    let large = text().prop_map(|v| Arc::new(LargeBinaryArray::from_iter(v)) as ArrayRef);
    let fixed = (proptest::collection::vec(any::<u8>(), n * 3), nulls(n))
        .prop_map(|(v, nulls)| Arc::new(FixedSizeBinaryArray::new(3, v.into(), nulls)) as ArrayRef);
    let keys = (proptest::collection::vec(0..4u8, n), nulls(n)).prop_map(|(keys, nulls)| {
        let values = Arc::new(StringArray::from(vec![Some("a"), None, Some("bb"), Some("")]));
        Arc::new(DictionaryArray::new(UInt8Array::new(keys.into(), nulls), values)) as ArrayRef
    });
    let none = Just(Arc::new(NullArray::new(n)) as ArrayRef);
    prop_oneof![ints, bools, strings, views, large, fixed, keys, none].boxed()
}

/// An array of `n` values with at most `depth` nesting levels.
fn array(n: usize, depth: usize) -> BoxedStrategy<ArrayRef> {
    if depth == 0 {
        return leaf(n);
    }
    let field = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
    let lengths = || proptest::collection::vec(0..4usize, n);
    let lists = (lengths(), nulls(n)).prop_flat_map(move |(lengths, nulls)| {
        let offsets = OffsetBuffer::<i32>::from_lengths(lengths.iter().copied());
        array(lengths.iter().sum(), depth - 1).prop_map(move |child| {
            Arc::new(ListArray::new(field(&child), offsets.clone(), child, nulls.clone())) as ArrayRef
        })
    });
    let list_views =
        (proptest::collection::vec((0..7i64, 0..5i64), n), nulls(n)).prop_flat_map(move |(at, nulls)| {
            array(11, depth - 1).prop_map(move |child| {
                let (offsets, sizes): (Vec<i64>, Vec<i64>) = at.iter().copied().unzip();
                let (offsets, sizes) = (ScalarBuffer::from(offsets), ScalarBuffer::from(sizes));
                Arc::new(LargeListViewArray::new(field(&child), offsets, sizes, child, nulls.clone()))
                    as ArrayRef
            })
        });
    let fixed = (array(n * 3, depth - 1), nulls(n)).prop_map(move |(child, nulls)| {
        Arc::new(FixedSizeListArray::new(field(&child), 3, child, nulls)) as ArrayRef
    });
    let structs = (array(n, depth - 1), array(n + 5, depth - 1), 0..5usize, nulls(n)).prop_map(
        move |(a, b, skip, nulls)| {
            let b = b.slice(skip, n);
            let fields: Vec<Field> = [&a, &b].map(|x| Field::new("f", x.data_type().clone(), true)).into();
            Arc::new(StructArray::new(Fields::from(fields), vec![a, b], nulls)) as ArrayRef
        },
    );
    let unions =
        (array(n, depth - 1), array(n, depth - 1), proptest::collection::vec(0..2i8, n), any::<bool>())
            .prop_map(move |(a, b, ids, dense)| {
                let fields = UnionFields::try_new(
                    [0, 1],
                    [
                        Field::new("a", a.data_type().clone(), true),
                        Field::new("b", b.data_type().clone(), true),
                    ],
                );
                let offsets = dense.then(|| ScalarBuffer::from((0..n as i32).collect::<Vec<_>>()));
                Arc::new(UnionArray::try_new(fields.unwrap(), ids.into(), offsets, vec![a, b]).unwrap())
                    as ArrayRef
            });
    prop_oneof![leaf(n), lists, list_views, fixed, structs, unions].boxed()
}

fn columns() -> impl Strategy<Value = (Vec<ArrayRef>, usize, usize)> {
    (0..90usize).prop_flat_map(|n| {
        let columns = proptest::collection::vec(array(n, 3), 1..4);
        (columns, 0..=n).prop_flat_map(move |(columns, offset)| (Just(columns), Just(offset), 0..=n - offset))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_slice_is_unchanged_after_export_import_and_moves((columns, offset, len) in columns()) {
        let fixture = Fixture::new();
        let far = fixture.host.stream(Device::UNTOUCHABLE);
        let whole = fixture.batch(&columns);
        let slice = whole.slice(offset, len).unwrap();
        validate(&slice, Level::Full, &fixture.cpu).unwrap();

        let raw = export_batch(&slice, false, &fixture.cpu).unwrap();
        let crossed = import_batch(raw, slice.schema(), &fixture.memory).unwrap();
        let on_device = crossed.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
        validate(&on_device, Level::Full, &far).unwrap();
        let raw = export_batch(&on_device, false, &far).unwrap();
        let crossed = import_batch(raw, slice.schema(), &fixture.memory).unwrap();
        let compact = crossed.compact(&far).unwrap();
        let back = crossed.move_to(&far, Device::CPU).unwrap();

        prop_assert_eq!(first_difference(&slice, &back, &fixture.cpu).unwrap(), None);
        prop_assert_eq!(first_difference(&slice, &compact, &fixture.cpu).unwrap(), None);
        for ((field, column), expected) in back.schema().fields().iter().zip(back.columns()).zip(&columns) {
            prop_assert_eq!(&fixture.export(column, field), &expected.slice(offset, len));
        }
        drop((whole, slice, on_device, crossed, compact, back));
        fixture.host.assert_nothing_leaked();
    }
}

#[test]
fn generator_covers_nested_types_nulls_and_bit_offsets() {
    let mut runner = TestRunner::deterministic();
    let arrays: Vec<ArrayRef> =
        (0..300).flat_map(|_| columns().new_tree(&mut runner).unwrap().current().0).collect();
    let has = |f: &dyn Fn(&ArrayRef) -> bool| arrays.iter().any(f);
    assert!(has(&|a| matches!(a.data_type(), DataType::List(f) if f.data_type().is_nested())));
    assert!(has(&|a| matches!(a.data_type(), DataType::Union(..))));
    assert!(has(&|a| a.nulls().is_some_and(|n| n.offset() % 8 != 0 && n.offset() > 8)));
}

#[test]
fn moves_of_slices_copy_only_their_rows() {
    let fixture = Fixture::new();
    let (mut numbers, mut text) = (Int16Builder::new(), StringBuilder::new());
    for i in 0..1000i16 {
        numbers.append_option((i % 3 != 0).then_some(i));
        text.append_option((i % 5 != 0).then(|| format!("row {i}")));
    }
    let batch = fixture.batch(&[Arc::new(numbers.finish()), Arc::new(text.finish())]);
    for start in (0..1000).step_by(77) {
        let slice = batch.slice(start, 77.min(1000 - start)).unwrap();
        let moved = slice.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
        assert!(moved.buffer_bytes() < 77 * 20, "{} bytes were moved for 77 rows", moved.buffer_bytes());
        assert_eq!(first_difference(&slice, &moved, &fixture.cpu).unwrap(), None);
    }
}
