//! Tests batches whose number of rows is on the device.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int32Array};
use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, IntType, Level, PendingBatch, count_rows, export_batch, export_pending,
    first_difference, import_batch, import_pending, import_pending_result, import_result, validate,
};
use crossdock_memory::{Buffer, Device, Stream};
use crossdock_test_support::devices;

use crate::common::Fixture;

const CAPACITY: usize = 9;
const INT64: IntType = IntType { width_bytes: 8, signed: true };

fn arrays() -> Vec<ArrayRef> {
    vec![
        Arc::new((0..CAPACITY as i32).map(|i| (i % 4 > 0).then_some(i)).collect::<Int32Array>()),
        Arc::new((0..CAPACITY).map(|i| Some(i % 2 == 0)).collect::<BooleanArray>()),
    ]
}

/// A batch of `CAPACITY` rows.
fn padded(fixture: &Fixture, stream: &Stream) -> DeviceBatch {
    fixture.batch(&arrays()).move_to(stream, stream.device()).unwrap()
}

fn buffer(stream: &Stream, bytes: &[u8]) -> Buffer {
    let write = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    stream.memory().alloc_with(stream, bytes.len(), write).unwrap().freeze(stream).unwrap()
}

fn pending(fixture: &Fixture, stream: &Stream, rows: i64) -> PendingBatch {
    let counter = buffer(stream, &rows.to_ne_bytes());
    PendingBatch::try_new(padded(fixture, stream), &counter, INT64, stream).unwrap()
}

/// All work that the host has counted: launches and copies.
fn work(fixture: &Fixture) -> String {
    format!("{:?}", fixture.host.backend().ledger())
}

#[test]
fn settled_batch_has_the_counted_rows() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = padded(&fixture, &stream);
        for rows in [0, 1, 5, CAPACITY] {
            let n = rows as u8;
            for (bytes, signed) in [
                (i32::from(n).to_ne_bytes().to_vec(), true),
                (u32::from(n).to_ne_bytes().to_vec(), false),
                (i64::from(n).to_ne_bytes().to_vec(), true),
                (u64::from(n).to_ne_bytes().to_vec(), false),
            ] {
                let of = IntType { width_bytes: bytes.len(), signed };
                let counter = buffer(&stream, &bytes);
                let pending = PendingBatch::try_new(batch.clone(), &counter, of, &stream).unwrap();
                assert_eq!((pending.capacity(), pending.known_rows()), (CAPACITY, None));
                let settled = pending.settle(&stream).unwrap();
                assert_eq!((settled.len(), pending.known_rows()), (rows, Some(rows)), "{of:?} on {device}");
                let expected = batch.slice(0, rows).unwrap();
                assert_eq!(first_difference(&settled, &expected, &stream).unwrap(), None);
            }
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn rejects_counters_outside_the_capacity_and_names_both_numbers() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let batch = padded(&fixture, &stream);
        for (bytes, signed, shown) in [
            (10i64.to_ne_bytes().to_vec(), true, "10"),
            ((-1i64).to_ne_bytes().to_vec(), true, "-1"),
            (i64::MIN.to_ne_bytes().to_vec(), true, "-9223372036854775808"),
            (u64::MAX.to_ne_bytes().to_vec(), false, "9223372036854775807"),
            ((-1i32).to_ne_bytes().to_vec(), true, "-1"),
            (u32::MAX.to_ne_bytes().to_vec(), false, "4294967295"),
        ] {
            let of = IntType { width_bytes: bytes.len(), signed };
            let pending =
                PendingBatch::try_new(batch.clone(), &buffer(&stream, &bytes), of, &stream).unwrap();
            for _ in 0..2 {
                let error = pending.settle(&stream).unwrap_err();
                let expected = format!("on {device} is {shown}, expected 0 to 9");
                assert!(error.message().contains(&expected), "{of:?}: {error}");
            }
        }
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn rejects_counters_that_do_not_belong_to_the_batch() {
    let fixture = Fixture::new();
    let far = fixture.host.stream(Device::UNTOUCHABLE);
    let batch = padded(&fixture, &far);
    let error = |counter: &Buffer, of| {
        PendingBatch::try_new(batch.clone(), counter, of, &far).unwrap_err().message().to_string()
    };
    let on_cpu = error(&buffer(&fixture.cpu, &[0; 8]), INT64);
    assert!(on_cpu.contains("is on cpu, but the batch is on untouchable"), "{on_cpu}");
    let short = error(&buffer(&far, &[0; 4]), INT64);
    assert!(short.contains("expected one integer of 8 bytes"), "{short}");
    let narrow = error(&buffer(&far, &[0; 8]), IntType { width_bytes: 2, signed: true });
    assert!(narrow.contains("an integer of 2 bytes, expected 4 or 8"), "{narrow}");
}

#[test]
fn counter_is_read_once_for_all_clones_and_selections() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let pending = pending(&fixture, &stream, 4);
        let before = work(&fixture);
        let selected = pending.with_columns(|batch| batch.select(&[1])).unwrap();
        assert_eq!((selected.capacity(), selected.known_rows()), (CAPACITY, None));
        assert_eq!(work(&fixture), before, "a selection read the counter");
        assert_eq!(selected.settle(&stream).unwrap().len(), 4);
        assert_eq!(pending.known_rows(), Some(4));
        let after = work(&fixture);
        assert_ne!(before, after);
        assert_eq!(pending.clone().settle(&stream).unwrap().len(), 4);
        assert_eq!(work(&fixture), after, "the counter was read again");
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn export_and_import_keep_the_counter_without_reading_it() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let mut batch = padded(&fixture, &stream);
        batch.resolve_sizes(&stream).unwrap();
        let counter = buffer(&stream, &5i64.to_ne_bytes());
        let pending = PendingBatch::try_new(batch, &counter, INT64, &stream).unwrap();
        let address = counter.address();
        drop(counter);
        let raw = export_pending(&pending, &stream, false).unwrap();
        assert_eq!((raw.n_rows_device as u64, raw.array.array.length), (address, CAPACITY as i64));
        assert_eq!(count_rows(&raw, &stream).unwrap(), 5);
        let expected = pending.settle(&stream).unwrap();
        drop(pending);
        let before = work(&fixture);
        let back = import_pending(raw, expected.schema(), &fixture.memory).unwrap();
        assert_eq!((back.capacity(), back.known_rows()), (CAPACITY, None));
        assert_eq!(work(&fixture), before, "the import did work");
        let settled = back.settle(&stream).unwrap();
        assert_eq!(first_difference(&settled, &expected, &stream).unwrap(), None);
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn imports_of_known_length_read_the_counter() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let raw = |rows| export_pending(&pending(&fixture, &stream, rows), &stream, false).unwrap();
        let schema = padded(&fixture, &stream).schema().clone();
        assert_eq!(import_batch(raw(5), &schema, &fixture.memory).unwrap().len(), 5);
        assert_eq!(import_result(raw(6), &schema, &stream).unwrap().len(), 6);
        assert_eq!(import_pending_result(raw(7), &schema, &stream).unwrap().known_rows(), None);
        let error = import_batch(raw(10), &schema, &fixture.memory).unwrap_err();
        assert!(error.message().contains("is 10, expected 0 to 9"), "{error}");
        let error = count_rows(&raw(-2), &stream).unwrap_err();
        assert!(error.message().contains("is -2, expected 0 to 9"), "{error}");
        let without = export_batch(&padded(&fixture, &stream), false, &stream).unwrap();
        assert_eq!(count_rows(&without, &stream).unwrap(), CAPACITY);
    }
    fixture.host.assert_nothing_leaked();
}

#[test]
fn rejects_misaligned_counters() {
    let fixture = Fixture::new();
    let pending = pending(&fixture, &fixture.cpu, 1);
    let mut raw = export_pending(&pending, &fixture.cpu, false).unwrap();
    // SAFETY: the fields of an owned struct may be changed; the address is not read.
    unsafe { (*raw.as_mut_ptr()).n_rows_device = raw.n_rows_device.byte_add(4) };
    let error = import_pending(raw, pending.schema(), &fixture.memory).unwrap_err();
    assert!(error.message().contains("expected a multiple of 8"), "{error}");
}

#[test]
fn rows_behind_the_counter_may_have_any_contents() {
    let fixture = Fixture::new();
    for device in devices().iter().copied() {
        let stream = fixture.host.stream(device);
        let mut offsets: Vec<u8> = [0i32, 1, 3].iter().flat_map(|offset| offset.to_ne_bytes()).collect();
        offsets.extend([0xee; 4 * (CAPACITY - 2)]);
        let buffers = vec![None, Some(buffer(&stream, &offsets)), Some(buffer(&stream, b"abc\xff"))];
        let column = DeviceArray::try_new(DataType::Utf8, CAPACITY, 0, Some(0), buffers, vec![], None);
        let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, false)]));
        let batch = DeviceBatch::try_new(schema, CAPACITY, vec![column.unwrap()]).unwrap();
        assert!(validate(&batch, Level::Full, &stream).is_err(), "the padding is malformed");
        let counter = buffer(&stream, &2i64.to_ne_bytes());
        let pending = PendingBatch::try_new(batch, &counter, INT64, &stream).unwrap();
        assert!(export_pending(&pending, &stream, false).is_err(), "the consumer could read the padding");
        let settled = pending.settle(&stream).unwrap();
        validate(&settled, Level::Full, &stream).unwrap();
        let expected = fixture.batch(&[Arc::new(arrow_array::StringArray::from(vec!["a", "bc"]))]);
        let settled = settled.move_to(&stream, Device::CPU).unwrap();
        let expected = expected.with_schema(settled.schema().clone()).unwrap();
        assert_eq!(first_difference(&settled, &expected, &fixture.cpu).unwrap(), None);
    }
    fixture.host.assert_nothing_leaked();
}
