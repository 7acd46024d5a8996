//! Tests batches and tables whose number of rows is on the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{Array, Int32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use crossdock::api::{Device, Validate};
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{ColumnSlice, Error, PendingTable, ReadOptions, Reader, Session, Table, WriteOptions};
use crossdock_arrays::{IntType, PendingBatch};
use crossdock_test_support::devices;

use crate::common::mini;

const INT64: IntType = IntType { width_bytes: 8, signed: true };

fn session(device: Device) -> Session {
    mini::host().session().device(device).validate(Validate::Layout).open().unwrap()
}

/// A file whose batches have four rows and a capacity of six.
fn file(values: &[i32]) -> Input {
    let mut bytes = mini::bytes(values);
    bytes[..4].copy_from_slice(b"PADD");
    Input::bytes(bytes)
}

fn reader(session: &Session, values: &[i32], options: ReadOptions) -> Reader {
    session.read(file(values), &options).unwrap()
}

fn values(session: &Session, batches: Vec<crossdock_arrays::DeviceBatch>) -> Vec<i32> {
    let table = Table::from_batches(session, mini::schema(), batches).unwrap();
    let batches = table.to_record_batches().unwrap();
    let ints = |batch: &RecordBatch| {
        let column = batch.column(0).as_any().downcast_ref::<Int32Array>().unwrap();
        (0..column.len()).map(|i| column.value(i)).collect::<Vec<_>>()
    };
    batches.iter().flat_map(ints).collect()
}

/// A batch with the column `v` and room for five rows.
fn pending_batch(session: &Session, rows: i64) -> PendingBatch {
    let column = ColumnSlice::new(&[1i32, 2, 3, 4, 5][..]);
    let table = Table::from_columns(session, mini::schema(), &[column]).unwrap();
    let counter = session.memory().alloc_with(session.stream(), 8, |to| {
        to.copy_from_slice(&rows.to_ne_bytes());
        Ok(())
    });
    let counter = counter.unwrap().freeze(session.stream()).unwrap();
    PendingBatch::try_new(table.batches()[0].clone(), &counter, INT64, session.stream()).unwrap()
}

#[test]
fn reader_returns_batches_without_waiting_for_their_rows() {
    for device in devices().iter().copied() {
        let session = session(device);
        let mut reader = reader(&session, &[1, 2, 3, 4, 5], ReadOptions::default());
        let mut batches = Vec::new();
        for (capacity, rows) in [(6, 4), (3, 1)] {
            let batch = reader.next_pending().unwrap().unwrap();
            assert_eq!((batch.capacity(), batch.known_rows()), (capacity, None), "{device}");
            batches.push(batch.settle(session.stream()).unwrap());
            assert_eq!(batch.known_rows(), Some(rows));
        }
        assert!(reader.next_pending().unwrap().is_none());
        assert_eq!(values(&session, batches), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn reader_reads_the_rows_where_it_needs_them() {
    for device in devices().iter().copied() {
        let session = session(device);
        let all = reader(&session, &[1, 2, 3, 4, 5], ReadOptions::default());
        let all = all.collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(all.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [4, 1]);
        assert_eq!(values(&session, all), [1, 2, 3, 4, 5]);
        let rows = ReadOptions { rows: Some(vec![1..2, 3..5]), ..ReadOptions::default() };
        let limit = ReadOptions { limit: Some(3), ..ReadOptions::default() };
        let split = ReadOptions { batch_rows: 3, ..ReadOptions::default() };
        for (options, expected, n_batches) in
            [(rows, vec![2, 4, 5], 3), (limit, vec![1, 2, 3], 1), (split, vec![1, 2, 3, 4, 5], 3)]
        {
            let mut reader = reader(&session, &[1, 2, 3, 4, 5], options);
            let mut batches = Vec::new();
            while let Some(batch) = reader.next_pending().unwrap() {
                assert!(batch.known_rows().is_some());
                batches.push(batch.settle(session.stream()).unwrap());
            }
            assert_eq!((batches.len(), values(&session, batches)), (n_batches, expected));
        }
        // Full validation reads values, so it needs the rows.
        let full = mini::host().session().device(device).validate(Validate::Full).open().unwrap();
        let batch = reader(&full, &[1], ReadOptions::default()).next_pending().unwrap().unwrap();
        assert_eq!(batch.known_rows(), Some(1));
    }
}

#[test]
fn columns_are_chosen_without_waiting_for_rows() {
    for device in devices().iter().copied() {
        let session = session(device);
        let options = ReadOptions { columns: Some(Vec::new()), ..ReadOptions::default() };
        let batch = reader(&session, &[1, 2], options).next_pending().unwrap().unwrap();
        assert_eq!((batch.schema().fields().len(), batch.capacity(), batch.known_rows()), (0, 4, None));
        assert_eq!(batch.settle(session.stream()).unwrap().len(), 2);
    }
}

#[test]
fn rows_above_the_capacity_are_an_error_of_the_plugin() {
    for device in devices().iter().copied() {
        let session = session(device);
        let mut reader = reader(&session, &[-668, 2], ReadOptions::default());
        let error = reader.next().unwrap_err();
        assert!(matches!(error, Error::Data { .. }), "{error:?}");
        let text = error.one_line();
        assert!(text.contains("mini") && text.contains("returned a malformed batch"), "{text}");
        assert!(text.contains("is 99, expected 0 to 4"), "{text}");
        assert!(reader.next().is_err(), "the reader continues after an error");
    }
}

#[test]
fn writer_passes_the_counter_only_to_formats_that_accept_it() {
    for device in devices().iter().copied() {
        let session = session(device);
        let mut written = Vec::new();
        for (format, n_counters) in [("mini-padded", 1), ("mini", 0)] {
            let sink = VecSink::new();
            let options = WriteOptions { to: Some(format.into()), ..WriteOptions::default() };
            let mut writer = session.write(Output::Memory(sink.clone()), &mini::schema(), &options).unwrap();
            let before = mini::COUNTERS_WRITTEN.load(Ordering::SeqCst);
            let batch = pending_batch(&session, 3);
            writer.write_pending(&batch).unwrap();
            assert_eq!(mini::COUNTERS_WRITTEN.load(Ordering::SeqCst) - before, n_counters, "{format}");
            // The number is known now to the host, or not.
            assert_eq!(batch.known_rows().is_none(), n_counters == 1, "{format}");
            writer.write_pending(&batch.settle(session.stream()).unwrap().into()).unwrap();
            let error = writer.write_pending(&pending_batch(&session, 6)).err().unwrap().one_line();
            assert!(error.contains("is 6, expected 0 to 5"), "{error}");
            assert!(writer.finish().is_err(), "an incomplete output was finished");
            written.push(sink.take().split_off(4));
        }
        let expected = mini::bytes(&[1, 2, 3, 1, 2, 3]).split_off(4);
        assert_eq!(written, [expected.clone(), expected], "{device}");
    }
}

#[test]
fn pending_table_reads_its_rows_once() {
    for device in devices().iter().copied() {
        let session = session(device);
        let pending = PendingTable::new(&session, pending_batch(&session, 2));
        assert_eq!((pending.capacity(), pending.known_rows(), pending.device()), (5, None, device));
        let selected = pending.select(&[0, 0]).unwrap();
        assert_eq!((selected.schema().fields().len(), selected.known_rows()), (2, None));
        assert_eq!(pending.padded().unwrap().rows(), 5);
        assert_eq!(pending.known_rows(), None, "padded read the rows");
        let table = pending.table().unwrap();
        assert_eq!(values(&session, table.batches().to_vec()), [1, 2]);
        assert!(std::ptr::eq(table, pending.table().unwrap()));
        assert_eq!(selected.table().unwrap().rows(), 2);
        let error = pending.select(&[1]).err().unwrap();
        assert!(matches!(error, Error::Usage(_)), "{error:?}");
        for rows in [-1, 6] {
            let wrong = PendingTable::new(&session, pending_batch(&session, rows));
            let error = wrong.table().err().unwrap().one_line();
            assert!(error.contains(&format!("is {rows}, expected 0 to 5")), "{error}");
        }
    }
}

#[test]
fn padded_rows_need_columns_of_a_fixed_width() {
    let session = session(Device::CPU);
    let schema = Arc::new(Schema::new(vec![Field::new("s", DataType::Utf8, false)]));
    let table = Table::from_columns(&session, schema, &[ColumnSlice::new(&["a", "b"][..])]).unwrap();
    let counter = pending_batch(&session, 1).counter().unwrap().clone();
    let batch = PendingBatch::try_new(table.batches()[0].clone(), &counter, INT64, session.stream()).unwrap();
    let pending = PendingTable::new(&session, batch);
    let error = pending.padded().err().unwrap();
    assert!(error.to_string().contains("only columns of a fixed width"), "{error}");
    assert_eq!(pending.table().unwrap().rows(), 1);
}
