//! Tests that each malformed C array is rejected, is released exactly once, and leaks nothing.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use crate::common::Fixture;
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{
    Device, DeviceArray, DeviceBatch, Level, Result, first_difference, import_batch, import_device_array,
    validate,
};
use crossdock_plugin_api::{Owned, abi};

thread_local!(static RELEASES: Cell<usize> = const { Cell::new(0) });

unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
    RELEASES.set(RELEASES.get() + 1);
    // SAFETY: the caller passes an unreleased array that `ints` created.
    unsafe { (*array).release = None };
}

/// An array of 3 values of 4 bytes without nulls, with the buffers `list`.
fn ints(list: &mut [*const c_void]) -> abi::ArrowArray {
    abi::ArrowArray {
        length: 3,
        n_buffers: list.len() as i64,
        buffers: list.as_mut_ptr(),
        release: Some(release),
        ..Default::default()
    }
}

fn on_cpu(array: abi::ArrowArray) -> abi::ArrowDeviceArray {
    abi::ArrowDeviceArray { array, device_id: -1, device_type: abi::DEVICE_CPU, ..Default::default() }
}

/// Imports an array, and expects exactly one release if the import fails.
fn import(fixture: &Fixture, raw: abi::ArrowDeviceArray, t: DataType) -> Result<DeviceArray> {
    let before = RELEASES.get();
    let released = raw.array.release.is_none();
    // SAFETY: the pointers that the import follows are valid or NULL.
    let imported = import_device_array(unsafe { Owned::new(raw) }, &Field::new("", t, true), &fixture.memory);
    if imported.is_err() {
        assert_eq!(RELEASES.get() - before, usize::from(!released));
    }
    imported
}

fn assert_rejected(expected: &str, t: DataType, change: impl Fn(&mut abi::ArrowDeviceArray)) {
    let fixture = Fixture::new();
    let words = [1u64, 2, 3, 4];
    let mut list = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
    let mut raw = on_cpu(ints(&mut list));
    change(&mut raw);
    let message = import(&fixture, raw, t).unwrap_err().message().to_string();
    assert!(message.contains(expected), "{message}");
    fixture.host.assert_nothing_leaked();
}

#[test]
fn valid_array_is_imported_without_copy_and_released_with_last_buffer() {
    let fixture = Fixture::new();
    let words = [1u64, 2];
    let mut list = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
    let array = import(&fixture, on_cpu(ints(&mut list)), DataType::Int32).unwrap();
    let buffer = array.buffers()[1].clone().unwrap();
    assert_eq!((buffer.address(), buffer.len()), (words.as_ptr() as u64, Some(12)));
    drop(array);
    assert_eq!(RELEASES.get(), 0);
    drop(buffer);
    assert_eq!(RELEASES.get(), 1);
}

#[test]
fn rejects_impossible_lengths_offsets_and_null_counts() {
    let int = || DataType::Int32;
    assert_rejected("length is -1", int(), |raw| raw.array.length = -1);
    assert_rejected("offset is -8", int(), |raw| raw.array.offset = -8);
    assert_rejected("null count (-1 for unknown) is -2", int(), |raw| raw.array.null_count = -2);
    assert_rejected("null count is 4, expected at most the length 3", int(), |raw| raw.array.null_count = 4);
    assert_rejected("null count is 2, but the array has no validity", int(), |raw| raw.array.null_count = 2);
    assert_rejected("exceeds the maximum length of an array", int(), |raw| raw.array.offset = i64::MAX);
    assert_rejected("beyond the address space", int(), |raw| raw.array.length = i64::MAX);
    assert_rejected("beyond the address space", int(), |raw| raw.array.length = i64::MAX / 4);
}

#[test]
fn rejects_wrong_numbers_of_buffers_and_children() {
    assert_rejected("has 1 buffers, expected 2", DataType::Int32, |raw| raw.array.n_buffers = 1);
    assert_rejected("has -2 buffers", DataType::Int32, |raw| raw.array.n_buffers = -2);
    assert_rejected("has 2 buffers, expected 3", DataType::Utf8, |_| {});
    assert_rejected("has 2 buffers, expected 3 or more", DataType::Utf8View, |_| {});
    assert_rejected("expected 3 or more", DataType::Utf8View, |raw| raw.array.n_buffers = i64::MAX);
    assert_rejected("has 2 buffers, expected 0", DataType::Null, |_| {});
    assert_rejected("list of them is NULL", DataType::Int32, |raw| raw.array.buffers = std::ptr::null_mut());
    assert_rejected("has 5 children, expected 0", DataType::Int32, |raw| raw.array.n_children = 5);
    let list = || DataType::new_list(DataType::Int8, true);
    assert_rejected("has 0 children, expected 1", list(), |_| {});
    assert_rejected("list of them is NULL", list(), |raw| raw.array.n_children = 1);
}

#[test]
fn accepts_legacy_validity_buffer_of_null_and_run_end_encoded_arrays() {
    let fixture = Fixture::new();
    let mut list = [std::ptr::null()];
    let array = import(&fixture, on_cpu(ints(&mut list)), DataType::Null).unwrap();
    assert_eq!((array.len(), array.buffers().len()), (3, 0));
    let (mut none, mut one) = ([std::ptr::null()], [std::ptr::null()]);
    let words = [3i32];
    let mut values = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
    let mut ends = abi::ArrowArray { length: 1, ..ints(&mut values) };
    let mut nulls = abi::ArrowArray { length: 1, ..ints(&mut none) };
    let mut children = [&raw mut ends, &raw mut nulls];
    let mut runs = ints(&mut one);
    (runs.n_children, runs.children) = (2, children.as_mut_ptr());
    let field = |name, t| Arc::new(Field::new(name, t, name == "values"));
    let t = DataType::RunEndEncoded(field("run_ends", DataType::Int32), field("values", DataType::Null));
    assert_eq!(import(&fixture, on_cpu(runs), t).unwrap().len(), 3);
}

#[test]
fn rejects_missing_buffers_children_and_dictionaries() {
    assert_rejected("values buffer is missing", DataType::Int32, |raw| {
        // SAFETY: the list has two entries.
        unsafe { *raw.array.buffers.add(1) = std::ptr::null() };
    });
    let mut none = [std::ptr::null_mut()];
    let list = none.as_mut_ptr();
    assert_rejected("child 0 is NULL", DataType::new_list(DataType::Int8, true), |raw| {
        (raw.array.n_children, raw.array.children) = (1, list);
    });
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_rejected("dictionary is missing", dictionary, |_| {});
}

#[test]
fn rejects_released_array_and_released_child() {
    assert_rejected("released already", DataType::Int32, |raw| raw.array.release = None);
    let mut child = abi::ArrowArray::default();
    let mut children = [&raw mut child];
    let children = children.as_mut_ptr();
    assert_rejected("released already", DataType::new_list(DataType::Int8, true), |raw| {
        (raw.array.n_children, raw.array.children) = (1, children);
    });
}

#[test]
fn rejects_unknown_devices_and_events_on_cpu() {
    assert_rejected("device type 7", DataType::Int32, |raw| raw.device_type = 7);
    assert_rejected("device type -3", DataType::Int32, |raw| raw.device_type = -3);
    assert_rejected("device -1 of type 2", DataType::Int32, |raw| raw.device_type = abi::DEVICE_CUDA);
    assert_rejected("has a sync_event, expected NULL", DataType::Int32, |raw| {
        raw.sync_event = raw.array.buffers.cast()
    });
}

#[test]
fn rejects_array_100_000_levels_deep_without_stack_overflow() {
    // Creating and dropping a type is recursive, so the type has only 1,000 levels, while the array
    // has more.
    let t = (0..1_000).fold(DataType::Int8, |t, _| DataType::new_list(t, true));
    let mut list = [std::ptr::null(), std::ptr::null()];
    let mut nodes: Vec<abi::ArrowArray> =
        (0..100_000).map(|_| abi::ArrowArray { length: 0, ..ints(&mut list) }).collect();
    let mut next: Vec<*mut abi::ArrowArray> = nodes.iter_mut().skip(1).map(|node| &raw mut *node).collect();
    for (node, next) in nodes.iter_mut().zip(&mut next) {
        (node.n_children, node.children) = (1, next);
    }
    let fixture = Fixture::new();
    // SAFETY: only this copy of the outermost node is released, and not the node itself.
    let root = on_cpu(unsafe { std::ptr::read(&nodes[0]) });
    let error = import(&fixture, root, t).unwrap_err();
    assert!(error.message().ends_with("an array nests deeper than 64 levels"), "{error}");
}

#[test]
fn rejects_size_table_that_does_not_match_buffers() {
    let words = [1u64, 2];
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let fixture = Fixture::new();
    for (sizes, expected) in [
        (&[0, 0, 12][..], None),
        (&[-1, -1, -1], None),
        (&[0, 0, 11], Some("has 11 bytes, expected at least 12")),
        (&[0, 0], Some("has more buffers")),
        (&[0, 0, 12, 0], Some("of 4 buffers, expected 3")),
        (&[0, 0, -2], Some("is -2")),
        (&[0, 5, 12], Some("is NULL, but its declared size")),
        (&[0, 0, i64::MAX], Some("beyond the address space")),
    ] {
        let mut list = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
        let mut child = ints(&mut list);
        let mut children = [&raw mut child];
        let mut none = [std::ptr::null()];
        let root = abi::ArrowArray { n_children: 1, children: children.as_mut_ptr(), ..ints(&mut none) };
        let mut batch = abi::Batch { array: on_cpu(root), ..abi::Batch::new() };
        (batch.buffer_sizes, batch.n_buffer_sizes) = (sizes.as_ptr(), sizes.len());
        // SAFETY: the pointers that the import follows are valid or NULL.
        let imported = import_batch(unsafe { Owned::new(batch) }, &schema, &fixture.memory);
        let message = imported.err().map(|e| e.message().to_string());
        assert_eq!(message.is_some(), expected.is_some(), "{sizes:?}: {message:?}");
        assert!(message.unwrap_or_default().contains(expected.unwrap_or("")), "{sizes:?}");
    }
}

#[test]
fn rejects_batch_with_null_rows_and_applies_batch_offset() {
    let words = [1u64 | 2 << 32, 3];
    let bits = [0b101u8];
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let fixture = Fixture::new();
    let batch = |validity: *const u8, null_count: i64| {
        let mut list = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
        let mut child = ints(&mut list);
        let mut children = [&raw mut child];
        let mut buffers = [validity.cast::<c_void>()];
        let root = abi::ArrowArray {
            length: 2,
            offset: 1,
            null_count,
            n_children: 1,
            children: children.as_mut_ptr(),
            ..ints(&mut buffers)
        };
        // SAFETY: the pointers that the import follows are valid or NULL.
        import_batch(
            unsafe { Owned::new(abi::Batch { array: on_cpu(root), ..abi::Batch::new() }) },
            &schema,
            &fixture.memory,
        )
    };
    assert!(batch(bits.as_ptr(), -1).unwrap_err().message().contains("1 null rows"));
    assert!(batch(bits.as_ptr(), 1).unwrap_err().message().contains("1 null rows"));
    let sliced = batch(std::ptr::null(), 0).unwrap();
    assert_eq!((sliced.len(), sliced.columns()[0].offset()), (2, 1));
}

/// If the import trusted the declared count, the null would become a value.
#[test]
fn declared_null_count_of_zero_is_not_trusted() {
    let (words, bits) = ([1u64 | 2 << 32, 3], [0b101u8]);
    let mut list = [bits.as_ptr().cast::<c_void>(), words.as_ptr().cast()];
    let fixture = Fixture::new();
    let raw = on_cpu(abi::ArrowArray { null_count: 0, ..ints(&mut list) });
    let array = import(&fixture, raw, DataType::Int32).unwrap();
    let stream = fixture.memory.default_stream(Device::CPU).unwrap();
    assert_eq!((array.null_count(), array.count_nulls(&stream)), (None, Ok(1)));
    assert_eq!(fixture.export(&array, &Field::new("", DataType::Int32, true)).null_count(), 1);
    for part in [array.clone(), array.slice(1, 2).unwrap()] {
        let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int32, true)]));
        let batch = DeviceBatch::try_new(schema, part.len(), vec![part]).unwrap();
        let error = validate(&batch, Level::Full, &stream).unwrap_err();
        assert_eq!(error.message(), "column c: the null count is 0, but the validity bitmap has 1 nulls");
    }
}

#[test]
fn accepts_empty_arrays_without_buffers() {
    let fixture = Fixture::new();
    for t in [DataType::Utf8, DataType::LargeBinary, DataType::Int32, DataType::Boolean] {
        let mut list = vec![std::ptr::null(); crossdock_arrays::layout::layout(&t).n_buffers()];
        let raw = on_cpu(abi::ArrowArray { length: 0, ..ints(&mut list) });
        let array = import(&fixture, raw, t.clone()).unwrap();
        assert_eq!(fixture.export(&array, &Field::new("", t, true)).len(), 0);
    }
}

#[test]
fn error_for_negative_last_offset_names_column() {
    let fixture = Fixture::new();
    let (offsets, data) = ([0i32, 1, 2, -5], b"abc");
    let mut list = [std::ptr::null(), offsets.as_ptr().cast::<c_void>(), data.as_ptr().cast::<c_void>()];
    let array = import(&fixture, on_cpu(ints(&mut list)), DataType::Utf8).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true)]));
    let mut batch = crossdock_arrays::DeviceBatch::try_new(schema, 3, vec![array]).unwrap();
    let error = batch.resolve_sizes(&fixture.cpu).unwrap_err();
    assert_eq!(error.message(), "'name': the last offset of an array is -5, expected 0 or more");
}

#[test]
fn compares_empty_array_with_maximum_offset() {
    let fixture = Fixture::new();
    let words = [1u64];
    let mut list = [std::ptr::null(), words.as_ptr().cast::<c_void>()];
    let mut raw = on_cpu(ints(&mut list));
    (raw.array.length, raw.array.offset) = (0, i64::MAX);
    let array = import(&fixture, raw, DataType::Int32).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("", DataType::Int32, true)]));
    let batch = DeviceBatch::try_new(schema, 0, vec![array]).unwrap();
    assert_eq!(first_difference(&batch, &batch, &fixture.cpu), Ok(None));
}
