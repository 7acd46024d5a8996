//! Batches put together, of every Arrow type, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, Int32Array, StringArray};
use arrow_schema::DataType;
use common::{Dock, samples};
use crossdock_arrays::{DeviceBatch, first_difference};
use crossdock_memory::{Device, Stream};
use crossdock_plugin_api::Code;
use crossdock_test_support::devices;

/// Slices of 11 rows: whole bytes and parts of them, nothing, one row.
const PARTS: [(usize, usize); 6] = [(1, 3), (4, 0), (0, 9), (10, 1), (2, 8), (0, 11)];

/// Whether a type is refused on a device.
fn is_refused(data_type: &DataType, device: Device) -> bool {
    use DataType::*;
    let below = |field: &arrow_schema::FieldRef| is_refused(field.data_type(), device);
    match data_type {
        Union(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_) => true,
        Utf8View | BinaryView => device != Device::CPU,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => below(field),
        Struct(fields) => fields.iter().any(below),
        _ => false,
    }
}

fn parts(batch: &DeviceBatch) -> Vec<DeviceBatch> {
    PARTS.iter().map(|(offset, len)| batch.slice(*offset, *len).unwrap()).collect()
}

fn assert_is_all_of(parts: &[DeviceBatch], whole: &DeviceBatch, stream: &Stream, what: &DataType) {
    assert_eq!(whole.len(), parts.iter().map(DeviceBatch::len).sum::<usize>());
    let mut from = 0;
    for part in parts {
        let piece = whole.slice(from, part.len()).unwrap();
        assert_eq!(first_difference(part, &piece, stream).unwrap(), None, "{what} {from}");
        from += part.len();
    }
}

#[test]
fn slices_of_every_type_put_together_are_one_after_the_other() {
    let dock = Dock::new();
    for array in &samples::all() {
        for device in devices().iter().copied() {
            let stream = dock.host.stream(device);
            let batch = dock.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let parts = parts(&batch);
            let whole = DeviceBatch::concatenate(&parts, &stream);
            if is_refused(array.data_type(), device) {
                let error = whole.unwrap_err();
                assert_eq!(error.code(), Code::UNSUPPORTED, "{error}");
                assert!(error.message().contains("column 'a'"), "{error}");
                continue;
            }
            let whole = whole.unwrap_or_else(|e| panic!("{} on {device}: {e}", array.data_type()));
            assert!(whole.bytes() == 0 || whole.device() == device, "{}", array.data_type());
            assert_is_all_of(&parts, &whole, &stream, array.data_type());
        }
    }
    dock.host.assert_nothing_leaked();
}

#[test]
fn what_was_put_together_can_be_put_together_again() {
    let dock = Dock::new();
    for array in &samples::all() {
        if is_refused(array.data_type(), Device::CPU) {
            continue;
        }
        let once =
            DeviceBatch::concatenate(&parts(&dock.batch(std::slice::from_ref(array))), &dock.cpu).unwrap();
        let twice = DeviceBatch::concatenate(&[once.clone(), once.clone()], &dock.cpu).unwrap();
        assert_is_all_of(&[once.clone(), once], &twice, &dock.cpu, array.data_type());
    }
}

#[test]
fn one_batch_is_itself_and_none_is_an_error() {
    let dock = Dock::new();
    let batch = dock.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let address = |batch: &DeviceBatch| batch.columns()[0].buffers()[1].as_ref().unwrap().address();
    let one = DeviceBatch::concatenate(std::slice::from_ref(&batch), &dock.cpu).unwrap();
    assert_eq!(address(&one), address(&batch));
    let with_empty =
        DeviceBatch::concatenate(&[batch.slice(0, 0).unwrap(), batch.clone()], &dock.cpu).unwrap();
    assert_eq!(address(&with_empty), address(&batch));
    let empty = [batch.slice(0, 0).unwrap(), batch.slice(1, 0).unwrap()];
    assert_eq!(DeviceBatch::concatenate(&empty, &dock.cpu).unwrap().len(), 0);
    assert_eq!(DeviceBatch::concatenate(&[], &dock.cpu).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn batches_of_another_schema_and_on_another_device_are_refused() {
    let dock = Dock::new();
    let numbers = dock.batch(&[Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef]);
    let bools = dock.batch(&[Arc::new(BooleanArray::from(vec![true])) as ArrayRef]);
    let error = DeviceBatch::concatenate(&[numbers.clone(), bools], &dock.cpu).unwrap_err();
    assert!(error.message().contains("batch 1 is of another schema"), "{error}");
    let there = numbers.move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap();
    let error = DeviceBatch::concatenate(&[numbers, there], &dock.cpu).unwrap_err();
    assert!(error.message().contains("expected one device"), "{error}");
}

fn dictionary(values: &[&str], keys: Vec<i8>) -> ArrayRef {
    let values = Arc::new(StringArray::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::new(keys.into(), values))
}

#[test]
fn equal_dictionaries_are_one_and_different_ones_are_refused() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let batch = |array| dock.batch(&[array]).move_to(&stream, device).unwrap();
        let parts =
            [batch(dictionary(&["a", "b"], vec![0, 1])), batch(dictionary(&["a", "b"], vec![1, 1, 0]))];
        let whole = DeviceBatch::concatenate(&parts, &stream).unwrap();
        assert_is_all_of(&parts, &whole, &stream, whole.columns()[0].data_type());
        let [first, _] = parts;
        let other = batch(dictionary(&["a", "c"], vec![0, 1]));
        let error = DeviceBatch::concatenate(&[first, other], &stream).unwrap_err();
        assert!(error.message().contains("dictionaries of different values"), "{error}");
    }
}

#[test]
fn views_go_on_pointing_at_their_own_data() {
    let dock = Dock::new();
    let views = |text: &str| -> ArrayRef {
        Arc::new(BinaryViewArray::from_iter_values(
            (0..3).map(|i| format!("{i} {text} that is not in place")),
        ))
    };
    let parts = [dock.batch(&[views("one")]), dock.batch(&[views("two")]), dock.batch(&[views("three")])];
    let whole = DeviceBatch::concatenate(&parts, &dock.cpu).unwrap();
    assert_is_all_of(&parts, &whole, &dock.cpu, &DataType::BinaryView);
}
