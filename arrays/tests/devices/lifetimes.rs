//! Tests the lifetimes of exported arrays and of moved structs and children, and tests that buffers
//! are not copied.

use std::sync::Arc;

use crate::common::{Fixture, samples};
use arrow_array::{Array, ArrayRef, Int32Array, StringArray};
use arrow_schema::Field;
use crossdock_arrays::{
    DeviceBatch, batch_schema, export_batch, export_device_array, first_difference, import_batch,
    import_device_array,
};
use crossdock_memory::{Buffer, Device, ForeignOwner, Ready};
use crossdock_plugin_api::{Owned, abi};
use crossdock_test_support::devices;

fn arrays() -> Vec<ArrayRef> {
    vec![
        Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
        Arc::new(StringArray::from(vec!["a", "bb", "ccc"])),
    ]
}

fn addresses(batch: &DeviceBatch) -> Vec<Option<u64>> {
    let buffers = batch.columns().iter().flat_map(|column| column.buffers());
    buffers
        .map(|slot| slot.as_ref().filter(|buffer| !buffer.is_empty()).map(|buffer| buffer.address()))
        .collect()
}

#[test]
fn export_and_import_keep_addresses_sizes_and_schema() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let mut batch = fixture.batch(&arrays()).move_to(&stream, device).unwrap();
        batch.resolve_sizes(&stream).unwrap();
        let before = fixture.host.backend().ledger();
        let raw = export_batch(&batch, true, &stream).unwrap();
        let schema = Arc::new(batch_schema(&raw).unwrap().unwrap());
        let back = import_batch(raw, &schema, &fixture.memory).unwrap();
        assert_eq!(addresses(&batch), addresses(&back));
        assert_eq!(batch.schema(), back.schema());
        assert!((0..2).all(|i| back.column_bytes(i).is_some()), "a size is unknown");
        assert_eq!(format!("{before:?}"), format!("{:?}", fixture.host.backend().ledger()));
    }
}

#[test]
fn exported_batch_outlives_batch_memory_and_host_handle() {
    let fixture = Fixture::new();
    let backend = fixture.host.backend().clone();
    let far = fixture.host.stream(Device::UNTOUCHABLE);
    let batch = fixture.batch(&arrays()).move_to(&far, Device::UNTOUCHABLE).unwrap();
    let raw = export_batch(&batch, false, &far).unwrap();
    drop((batch, far, fixture));
    assert_eq!(backend.leaks().len(), 1);
    drop(raw);
    assert!(backend.leaks().is_empty());
}

#[test]
fn moved_struct_releases_everything_once() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&samples::all()).move_to(&fixture.cpu, Device::UNTOUCHABLE).unwrap();
    let mut raw = export_batch(&batch, true, &fixture.cpu).unwrap();
    drop(batch);
    // SAFETY: the specification allows moving the struct, and `take` marks the original as
    // released.
    let mut moved = Box::new(unsafe { Owned::take(&raw mut (*raw.as_mut_ptr()).array) });
    assert!(raw.array.array.release.is_none());
    drop(raw);
    assert!(!fixture.host.backend().leaks().is_empty());
    let release = moved.array.release.unwrap();
    // SAFETY: the struct is not released, and `release` is the function that its producer set.
    unsafe { release(&mut (*moved.as_mut_ptr()).array) };
    assert!(moved.array.release.is_none());
    drop(moved);
    fixture.host.assert_nothing_leaked();
}

#[test]
fn moved_child_outlives_its_parent() {
    let fixture = Fixture::new();
    let batch = fixture.batch(&arrays());
    let mut raw = export_batch(&batch, false, &fixture.cpu).unwrap();
    let (schema, columns) = (batch.schema().clone(), arrays());
    drop(batch);
    // SAFETY: the array has two children, and the specification allows moving a child.
    let child = unsafe { Owned::<abi::ArrowArray>::take(*(*raw.as_mut_ptr()).array.array.children.add(1)) };
    drop(raw);
    assert_eq!(&crate::common::to_rust(child, schema.field(1)), &columns[1]);
}

#[test]
fn imported_array_is_released_after_its_last_slice_and_export() {
    let fixture = Fixture::new();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
    let Some(memory) = array.as_any().downcast_ref::<Int32Array>().map(|a| a.values().inner().clone()) else {
        panic!()
    };
    let field = Field::new("a", array.data_type().clone(), true);
    let imported = fixture.import(&array, &field);
    drop(array);
    let exported = export_device_array(&imported.slice(1, 2).unwrap(), &fixture.cpu).unwrap();
    drop(imported);
    assert!(memory.strong_count() > 1);
    drop(exported);
    assert_eq!(memory.strong_count(), 1);
}

#[test]
fn exported_batches_have_exact_null_counts() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = fixture.batch(&samples::all()).move_to(&stream, device).unwrap();
        let slice = batch.slice(2, 7).unwrap();
        let raw = export_batch(&slice, false, &stream).unwrap();
        let back = import_batch(raw, slice.schema(), &fixture.memory).unwrap();
        for (column, sample) in back.columns().iter().zip(samples::all()) {
            let expected = if sample.data_type().is_null() { 7 } else { sample.slice(2, 7).null_count() };
            assert_eq!(column.null_count(), Some(expected), "{}", sample.data_type());
        }
        assert_eq!(first_difference(&slice, &back, &stream).unwrap(), None);
        drop((batch, slice, back));
        fixture.host.assert_nothing_leaked();
    }
}

#[test]
fn exports_empty_strings_with_one_zero_offset_on_device() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let mut batch = fixture.batch(&arrays()).slice(0, 0).unwrap().move_to(&stream, device).unwrap();
        batch.resolve_sizes(&stream).unwrap();
        let raw = export_batch(&batch, false, &stream).unwrap();
        assert_eq!(raw.array.device_type, device.r#type);
        // SAFETY: the second column has three buffers: validity, offsets, data.
        let list = unsafe { std::slice::from_raw_parts((**raw.array.array.children.add(1)).buffers, 3) };
        assert!(list[0].is_null() && !list[1].is_null() && list[2].is_null());
        let owner = ForeignOwner::new(());
        // SAFETY: `raw` keeps the memory of the offset alive and outlives the buffer.
        let offset = unsafe { Buffer::foreign(&owner, device, list[1] as u64, Some(4), Ready::Now) };
        assert_eq!(*offset.host_view(&stream).unwrap(), [0; 4]);
    }
}

#[test]
fn exports_bitmap_only_if_there_are_nulls() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = fixture.batch(&arrays()).move_to(&stream, device).unwrap();
        for (offset, len, nulls) in [(0, 3, 1), (1, 2, 1), (2, 1, 0), (0, 1, 0)] {
            let slice = batch.slice(offset, len).unwrap();
            let raw = export_device_array(&slice.columns()[0], &stream).unwrap();
            // SAFETY: the array has two buffers.
            let validity = unsafe { *raw.array.buffers };
            assert_eq!((raw.array.null_count, validity.is_null()), (nulls, nulls == 0), "{offset} {len}");
        }
    }
}

#[test]
fn round_trip_without_size_table_keeps_values() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        for array in &samples::all() {
            let batch = fixture.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let slice = batch.slice(1, 9).unwrap();
            let field = slice.schema().field(0);
            let raw = export_device_array(&slice.columns()[0], &stream).unwrap();
            assert_eq!(raw.device_type, slice.columns()[0].device().r#type);
            let column = import_device_array(raw, field, &fixture.memory).unwrap();
            let mut back = DeviceBatch::try_new(slice.schema().clone(), 9, vec![column]).unwrap();
            // An array that was imported without sizes is exported without sizes, so the test
            // exports it again.
            let raw = export_device_array(&back.columns()[0], &stream).unwrap();
            let again = import_device_array(raw, field, &fixture.memory).unwrap();
            let again = DeviceBatch::try_new(slice.schema().clone(), 9, vec![again]).unwrap();
            assert_eq!(first_difference(&slice, &again, &stream).unwrap(), None);
            back.resolve_sizes(&stream).unwrap();
            assert!(back.column_bytes(0).is_some(), "{}", array.data_type());
            assert_eq!(first_difference(&slice, &back, &stream).unwrap(), None);
        }
    }
}

#[test]
fn batches_are_send_and_sync() {
    fn assert_send_and_sync<T: Send + Sync>() {}
    assert_send_and_sync::<DeviceBatch>();
}
