//! Tests import, export, slices and moves of every Arrow type, with arrow-rs as the reference.

use std::sync::Arc;

use crate::common::{Fixture, field_of, samples};
use arrow_array::{ArrayRef, Int32Array, UnionArray};
use arrow_schema::{DataType, Field, UnionFields};
use crossdock_arrays::{equal, first_difference};
use crossdock_memory::Device;
use crossdock_test_support::devices;

#[test]
fn import_and_export_keep_arrays_of_every_type() {
    let fixture = Fixture::new();
    for (i, array) in samples::all().iter().enumerate() {
        let field = field_of(i, array);
        let imported = fixture.import(array, &field);
        assert_eq!(&fixture.export(&imported, &field), array, "{}", array.data_type());
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn exported_slice_has_expected_values_for_every_type() {
    let fixture = Fixture::new();
    for (i, array) in samples::all().iter().enumerate() {
        let field = field_of(i, array);
        let imported = fixture.import(array, &field);
        for (offset, len) in [(0, 0), (1, 10), (3, 5), (9, 2), (11, 0), (0, 4), (10, 1)] {
            let slice = imported.slice(offset, len).unwrap();
            let expected = array.slice(offset, len);
            assert_eq!(&fixture.export(&slice, &field), &expected, "{} {offset} {len}", array.data_type());
        }
    }
}

#[test]
fn slices_of_every_type_survive_moves_to_device_and_back() {
    let fixture = Fixture::new();
    let far = fixture.host.stream(Device::UNTOUCHABLE);
    for (i, array) in samples::all().iter().enumerate() {
        let batch = fixture.batch(std::slice::from_ref(array));
        for (offset, len) in [(0, 11), (0, 0), (1, 10), (3, 5), (9, 2), (0, 4), (10, 1)] {
            let slice = batch.slice(offset, len).unwrap();
            let on_device = slice.move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
            assert!(
                on_device.buffer_bytes() == 0 || on_device.device() == Device::UNTOUCHABLE,
                "{}",
                array.data_type()
            );
            let back = on_device.move_to(&far, Device::CPU).unwrap();
            let exported = fixture.export(&back.columns()[0], &field_of(i, array));
            assert_eq!(&exported, &array.slice(offset, len), "{} {offset} {len}", array.data_type());
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn compact_keeps_values_and_removes_offsets() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = fixture.host.stream(device);
            let batch = fixture.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let slice = batch.slice(3, 7).unwrap();
            let compact = slice.compact(&stream).unwrap();
            assert_eq!(first_difference(&slice, &compact, &stream).unwrap(), None, "{}", array.data_type());
            let column = &compact.columns()[0];
            assert!(column.offset() == 0 || matches!(column.data_type(), DataType::RunEndEncoded(..)));
        }
    }
}

#[test]
fn equal_is_false_for_different_values() {
    let fixture = Fixture::new();
    for array in &samples::all() {
        let (left, right) = (fixture.batch(&[array.slice(0, 5)]), fixture.batch(&[array.slice(4, 5)]));
        let same = array.slice(0, 5).to_data() == array.slice(4, 5).to_data();
        assert_eq!(equal(&left, &right, &fixture.cpu).unwrap(), same, "{}", array.data_type());
    }
}

#[test]
fn union_values_in_different_children_are_not_equal() {
    let fixture = Fixture::new();
    let of = |id: i8| {
        let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int32, true));
        let fields = UnionFields::try_new([0, 1], fields).unwrap();
        let child: ArrayRef = Arc::new(Int32Array::from(vec![7]));
        let union = UnionArray::try_new(fields, vec![id].into(), None, vec![child.clone(), child]).unwrap();
        fixture.batch(&[Arc::new(union)])
    };
    assert!(equal(&of(0), &of(0), &fixture.cpu).unwrap());
    assert!(!equal(&of(0), &of(1), &fixture.cpu).unwrap());
}
