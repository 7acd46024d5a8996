//! Who is alive when: exported arrays, moved structs, children taken out, and no copies.

use std::sync::Arc;

use crate::common::{Dock, samples};
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
fn export_and_import_copy_nothing_and_keep_sizes_and_schema() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let mut batch = dock.batch(&arrays()).move_to(&stream, device).unwrap();
        batch.resolve_sizes(&stream).unwrap();
        let before = dock.host.backend().ledger();
        let raw = export_batch(&batch, true, &stream).unwrap();
        let schema = Arc::new(batch_schema(&raw).unwrap().unwrap());
        let back = import_batch(raw, &schema, &dock.memory).unwrap();
        assert_eq!(addresses(&batch), addresses(&back));
        assert_eq!(batch.schema(), back.schema());
        assert!((0..2).all(|i| back.column_bytes(i).is_some()), "a size got lost");
        assert_eq!(format!("{before:?}"), format!("{:?}", dock.host.backend().ledger()));
    }
}

#[test]
fn what_is_exported_outlives_the_batch_the_memory_and_the_host_handle() {
    let dock = Dock::new();
    let backend = dock.host.backend().clone();
    let far = dock.host.stream(Device::UNTOUCHABLE);
    let batch = dock.batch(&arrays()).move_to(&far, Device::UNTOUCHABLE).unwrap();
    let raw = export_batch(&batch, false, &far).unwrap();
    drop((batch, far, dock));
    assert_eq!(backend.leaks().len(), 1);
    drop(raw);
    assert!(backend.leaks().is_empty());
}

#[test]
fn a_struct_that_was_moved_bitwise_still_releases_all_once() {
    let dock = Dock::new();
    let batch = dock.batch(&samples::all()).move_to(&dock.cpu, Device::UNTOUCHABLE).unwrap();
    let mut raw = export_batch(&batch, true, &dock.cpu).unwrap();
    drop(batch);
    // SAFETY: a move as the specification says.
    let mut moved = Box::new(unsafe { Owned::take(&raw mut (*raw.as_mut_ptr()).array) });
    assert!(raw.array.array.release.is_none());
    drop(raw);
    assert!(!dock.host.backend().leaks().is_empty());
    let release = moved.array.release.unwrap();
    // SAFETY: the struct's own function on itself.
    unsafe { release(&mut (*moved.as_mut_ptr()).array) };
    assert!(moved.array.release.is_none());
    drop(moved);
    dock.host.assert_nothing_leaked();
}

#[test]
fn a_child_that_was_taken_out_outlives_its_parent() {
    let dock = Dock::new();
    let batch = dock.batch(&arrays());
    let mut raw = export_batch(&batch, false, &dock.cpu).unwrap();
    let (schema, columns) = (batch.schema().clone(), arrays());
    drop(batch);
    // SAFETY: the second of two children, moved as the specification says.
    let child = unsafe { Owned::<abi::ArrowArray>::take(*(*raw.as_mut_ptr()).array.array.children.add(1)) };
    drop(raw);
    assert_eq!(&crate::common::to_rust(child, schema.field(1)), &columns[1]);
}

#[test]
fn a_stranger_s_array_is_released_once_after_every_slice_and_export_of_it() {
    let dock = Dock::new();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
    let Some(weak) = array.as_any().downcast_ref::<Int32Array>().map(|a| a.values().inner().clone()) else {
        panic!()
    };
    let field = Field::new("a", array.data_type().clone(), true);
    let imported = dock.import(&array, &field);
    drop(array);
    let exported = export_device_array(&imported.slice(1, 2).unwrap(), &dock.cpu).unwrap();
    drop(imported);
    assert!(weak.strong_count() > 1);
    drop(exported);
    assert_eq!(weak.strong_count(), 1);
}

#[test]
fn every_sample_crosses_the_boundary_on_every_device_with_exact_null_counts() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let batch = dock.batch(&samples::all()).move_to(&stream, device).unwrap();
        let slice = batch.slice(2, 7).unwrap();
        let raw = export_batch(&slice, false, &stream).unwrap();
        let back = import_batch(raw, slice.schema(), &dock.memory).unwrap();
        for (column, sample) in back.columns().iter().zip(samples::all()) {
            let expected = if sample.data_type().is_null() { 7 } else { sample.slice(2, 7).null_count() };
            assert_eq!(column.null_count(), Some(expected), "{}", sample.data_type());
        }
        assert_eq!(first_difference(&slice, &back, &stream).unwrap(), None);
        drop((batch, slice, back));
        dock.host.assert_nothing_leaked();
    }
}

#[test]
fn empty_text_goes_out_with_one_zero_offset_that_the_device_can_read() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let mut batch = dock.batch(&arrays()).slice(0, 0).unwrap().move_to(&stream, device).unwrap();
        batch.resolve_sizes(&stream).unwrap();
        let raw = export_batch(&batch, false, &stream).unwrap();
        assert_eq!(raw.array.device_type, device.r#type);
        // SAFETY: the second column's list has three entries: validity, offsets, data.
        let list = unsafe { std::slice::from_raw_parts((**raw.array.array.children.add(1)).buffers, 3) };
        assert!(list[0].is_null() && !list[1].is_null() && list[2].is_null());
        let kept = ForeignOwner::new(());
        // SAFETY: one offset that `raw` keeps, which outlives the buffer.
        let offset = unsafe { Buffer::foreign(&kept, device, list[1] as u64, Some(4), Ready::Now) };
        assert_eq!(*offset.host_view(&stream).unwrap(), [0; 4]);
    }
}

#[test]
fn a_bitmap_goes_out_only_where_a_value_is_null() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        let batch = dock.batch(&arrays()).move_to(&stream, device).unwrap();
        for (offset, len, nulls) in [(0, 3, 1), (1, 2, 1), (2, 1, 0), (0, 1, 0)] {
            let slice = batch.slice(offset, len).unwrap();
            let raw = export_device_array(&slice.columns()[0], &stream).unwrap();
            // SAFETY: the first of two entries.
            let validity = unsafe { *raw.array.buffers };
            assert_eq!((raw.array.null_count, validity.is_null()), (nulls, nulls == 0), "{offset} {len}");
        }
    }
}

#[test]
fn every_sample_crosses_as_a_plain_device_array_without_a_size_table() {
    let dock = Dock::new();
    for device in devices().iter().copied() {
        let stream = dock.host.stream(device);
        for array in &samples::all() {
            let batch = dock.batch(std::slice::from_ref(array)).move_to(&stream, device).unwrap();
            let slice = batch.slice(1, 9).unwrap();
            let field = slice.schema().field(0);
            let raw = export_device_array(&slice.columns()[0], &stream).unwrap();
            assert_eq!(raw.device_type, slice.columns()[0].device().r#type);
            let column = import_device_array(raw, field, &dock.memory).unwrap();
            let mut back = DeviceBatch::try_new(slice.schema().clone(), 9, vec![column]).unwrap();
            // Unknown sizes may go on as they are: what came in without them goes out without them.
            let raw = export_device_array(&back.columns()[0], &stream).unwrap();
            let again = import_device_array(raw, field, &dock.memory).unwrap();
            let again = DeviceBatch::try_new(slice.schema().clone(), 9, vec![again]).unwrap();
            assert_eq!(first_difference(&slice, &again, &stream).unwrap(), None);
            back.resolve_sizes(&stream).unwrap();
            assert!(back.column_bytes(0).is_some(), "{}", array.data_type());
            assert_eq!(first_difference(&slice, &back, &stream).unwrap(), None);
        }
    }
}

#[test]
fn batches_may_go_to_other_threads() {
    fn is_sent<T: Send + Sync>() {}
    is_sent::<DeviceBatch>();
}
