//! Every Arrow type, in and out, sliced and moved, against arrow-rs.

use std::sync::Arc;

use crate::common::{Dock, field_of, samples};
use arrow_array::{ArrayRef, Int32Array, UnionArray};
use arrow_schema::{DataType, Field, UnionFields};
use crossdock_arrays::{equal, first_difference};
use crossdock_memory::Device;
use crossdock_test_support::devices;

#[test]
fn every_type_comes_back_from_import_and_export_as_it_went_in() {
    let dock = Dock::new();
    for (i, array) in samples::all().iter().enumerate() {
        let field = field_of(i, array);
        let imported = dock.import(array, &field);
        assert_eq!(&dock.export(&imported, &field), array, "{}", array.data_type());
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn every_slice_of_every_type_comes_back_as_that_slice() {
    let dock = Dock::new();
    for (i, array) in samples::all().iter().enumerate() {
        let field = field_of(i, array);
        let imported = dock.import(array, &field);
        for (offset, len) in [(0, 0), (1, 10), (3, 5), (9, 2), (11, 0), (0, 4), (10, 1)] {
            let slice = imported.slice(offset, len).unwrap();
            let expected = array.slice(offset, len);
            assert_eq!(&dock.export(&slice, &field), &expected, "{} {offset} {len}", array.data_type());
        }
    }
}

#[test]
fn every_slice_of_every_type_survives_a_move_to_a_device_and_back() {
    let dock = Dock::new();
    let far = dock.host.stream(Device::UNTOUCHABLE);
    for (i, array) in samples::all().iter().enumerate() {
        let batch = dock.batch(std::slice::from_ref(array));
        for (offset, len) in [(0, 11), (0, 0), (1, 10), (3, 5), (9, 2), (0, 4), (10, 1)] {
            let slice = batch.slice(offset, len).unwrap();
            let there = slice.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap();
            assert!(there.bytes() == 0 || there.device() == Device::UNTOUCHABLE, "{}", array.data_type());
            let back = there.move_to(&far, Device::CPU).unwrap();
            let exported = dock.export(&back.columns()[0], &field_of(i, array));
            assert_eq!(&exported, &array.slice(offset, len), "{} {offset} {len}", array.data_type());
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn a_compacted_slice_is_equal_and_begins_at_zero_on_both_devices() {
    let dock = Dock::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = dock.host.stream(device);
            let batch = dock.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let slice = batch.slice(3, 7).unwrap();
            let compact = slice.compact(&stream).unwrap();
            assert_eq!(first_difference(&slice, &compact, &stream).unwrap(), None, "{}", array.data_type());
            let column = &compact.columns()[0];
            assert!(column.offset() == 0 || matches!(column.data_type(), DataType::RunEndEncoded(..)));
        }
    }
}

#[test]
fn different_values_are_not_equal() {
    let dock = Dock::new();
    for array in &samples::all() {
        let (left, right) = (dock.batch(&[array.slice(0, 5)]), dock.batch(&[array.slice(4, 5)]));
        let same = array.slice(0, 5).to_data() == array.slice(4, 5).to_data();
        assert_eq!(equal(&left, &right, &dock.cpu).unwrap(), same, "{}", array.data_type());
    }
}

#[test]
fn the_same_number_in_another_child_of_a_union_is_another_value() {
    let dock = Dock::new();
    let of = |id: i8| {
        let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int32, true));
        let fields = UnionFields::try_new([0, 1], fields).unwrap();
        let child: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        let union = UnionArray::try_new(fields, vec![id].into(), None, vec![child.clone(), child]).unwrap();
        dock.batch(&[Arc::new(union)])
    };
    assert!(equal(&of(0), &of(0), &dock.cpu).unwrap());
    assert!(!equal(&of(0), &of(1), &dock.cpu).unwrap());
}
