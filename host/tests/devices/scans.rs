//! Tests of scans with a plugin that ignores requested rows and columns.

use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{RecordBatch, RecordBatchReader};

use crate::common::mini::{bytes, host};
use crate::common::temporary;
use crossdock::api::{CancelFlag, Device};
use crossdock::source::Input;
use crossdock::{ColumnName, Error, ReadOptions, Scan, ScanOptions, ScanSource, Session};
use crossdock_arrays::DeviceBatch;
use crossdock_test_support::devices;

fn session(device: Device) -> Session {
    host().session().device(device).open().unwrap()
}

/// Three files, with the values 0 to 6, none, and 7 to 11.
fn files(folder: &std::path::Path) -> Vec<PathBuf> {
    let parts: [Vec<i32>; 3] = [(0..7).collect(), Vec::new(), (7..12).collect()];
    let write = |(i, values): (usize, &Vec<i32>)| {
        let path = folder.join(format!("{i}.mini"));
        std::fs::write(&path, bytes(values)).unwrap();
        path
    };
    parts.iter().enumerate().map(write).collect()
}

fn values(session: &Session, batch: &DeviceBatch) -> Vec<i32> {
    let host = batch.move_to(session.stream(), Device::CPU).unwrap();
    let column = host.column(0).unwrap();
    let buffer = column.buffers()[1].clone().unwrap();
    let view = buffer.host_view(session.stream()).unwrap();
    let values = view.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
    values.skip(column.offset()).take(column.len()).collect()
}

fn options(read: ReadOptions, prefetch: usize) -> ScanOptions {
    ScanOptions { read, prefetch, ..ScanOptions::default() }
}

/// The values of each batch.
fn all(scan: &Scan) -> Vec<Vec<i32>> {
    scan.batches().unwrap().map(|batch| values(scan.session(), &batch.unwrap())).collect()
}

#[test]
fn host_selects_rows_of_all_files_together() {
    let folder = temporary();
    let files = files(folder.path());
    for device in devices().iter().copied() {
        for prefetch in [0, 1, 3] {
            let session = session(device);
            let scan =
                |read| session.scan(ScanSource::Files(files.clone()), options(read, prefetch)).unwrap();
            let everything = scan(ReadOptions::default());
            assert_eq!(all(&everything), [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8, 9, 10], vec![11]]);
            assert_eq!(all(&everything), all(&everything), "each pass reads from the beginning");
            let rows = ReadOptions { rows: Some(vec![2..5, 6..9, 20..30]), ..ReadOptions::default() };
            assert_eq!(all(&scan(rows.clone())), [vec![2, 3], vec![4], vec![6], vec![7, 8]]);
            assert_eq!(all(&scan(ReadOptions { limit: Some(4), ..rows.clone() })).concat(), [2, 3, 4, 6]);
            let split = all(&scan(ReadOptions { batch_rows: 3, ..ReadOptions::default() }));
            assert_eq!(split, [vec![0, 1, 2], vec![3], vec![4, 5, 6], vec![7, 8, 9], vec![10], vec![11]]);
            assert_eq!(scan(rows).head(2).unwrap().rows(), 2);
            let limited = scan(ReadOptions { limit: Some(0), ..ReadOptions::default() });
            assert!(all(&limited).is_empty());
            let host = session.host().clone();
            drop((session, everything, limited));
            assert_eq!(host.settle(), []);
        }
    }
}

#[test]
fn columns_may_be_repeated_and_missing_columns_are_errors() {
    let session = session(Device::CPU);
    let scan = |columns: Vec<ColumnName>| {
        let read = ReadOptions { columns: Some(columns), ..ReadOptions::default() };
        session.scan(ScanSource::Input(Input::bytes(bytes(&[1, 2]))), options(read, 0))
    };
    let names =
        |scan: Scan| scan.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    assert_eq!(names(scan(vec!["v".into(), "v".into()]).unwrap()), ["v", "v"]);
    let none = scan(Vec::new()).unwrap();
    assert_eq!((none.schema().fields().len(), none.to_table().unwrap().rows()), (0, 2));
    for column in [ColumnName::from("w"), "v.x".into(), ColumnName::Path(vec!["w".into()])] {
        let error = scan(vec![column.clone()]).err().unwrap();
        assert!(matches!(error, Error::Usage(_)), "{column:?}: {error:?}");
    }
}

#[test]
fn dropped_scan_releases_the_batches_that_were_read_ahead() {
    let folder = temporary();
    let files = files(folder.path());
    for prefetch in [0, 1, 4] {
        let session = session(Device::UNTOUCHABLE);
        let scan = session
            .scan(ScanSource::Files(files.clone()), options(ReadOptions::default(), prefetch))
            .unwrap();
        for taken in 0..3 {
            let mut batches = scan.batches().unwrap();
            for _ in 0..taken {
                batches.next().unwrap().unwrap();
            }
        }
        let host = session.host().clone();
        drop((scan, session));
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn cancelled_scan_ends_with_one_error() {
    for prefetch in [0, 2] {
        let flag = CancelFlag::new();
        let session = session(Device::CPU).with_cancel_flag(flag.clone());
        let input = ScanSource::Input(Input::bytes(bytes(&(0..100).collect::<Vec<_>>())));
        let scan = session.scan(input, options(ReadOptions::default(), prefetch)).unwrap();
        let mut batches = scan.batches().unwrap();
        batches.next().unwrap().unwrap();
        flag.cancel();
        let errors: Vec<_> = batches.by_ref().filter_map(Result::err).collect();
        assert!(matches!(errors[..], [Error::Cancelled]), "{errors:?}");
        assert!(batches.next().is_none());
    }
}

#[test]
fn error_of_a_later_file_follows_the_batches_before_it() {
    let folder = temporary();
    let mut files = files(folder.path());
    files.push(folder.path().join("missing.mini"));
    for prefetch in [0, 2] {
        let session = session(Device::CPU);
        let options = options(ReadOptions::default(), prefetch);
        let scan = session.scan(ScanSource::Files(files.clone()), options).unwrap();
        let results: Vec<_> = scan.batches().unwrap().collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 4);
        let error = results.last().unwrap().as_ref().err().unwrap().to_string();
        assert!(error.contains("missing.mini"), "{error}");
    }
    let error = session(Device::CPU).scan(ScanSource::Files(Vec::new()), ScanOptions::default());
    assert!(error.err().unwrap().to_string().contains("at least one file"));
}

#[test]
fn arrow_reader_returns_the_batches_in_host_memory_and_one_error() {
    let folder = temporary();
    let mut files = files(folder.path());
    for device in devices().iter().copied() {
        let session = session(device);
        let scan =
            session.scan(ScanSource::Files(files.clone()), options(ReadOptions::default(), 1)).unwrap();
        let reader: Box<dyn RecordBatchReader> = Box::new(scan.record_batches().unwrap());
        assert_eq!(reader.schema(), *scan.schema());
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        let values = |batch: &RecordBatch| batch.column(0).as_primitive::<Int32Type>().values().to_vec();
        let values: Vec<_> = batches.iter().map(values).collect();
        assert_eq!(values, [vec![0, 1, 2, 3], vec![4, 5, 6], vec![7, 8, 9, 10], vec![11]]);
    }
    files.push(folder.path().join("missing.mini"));
    let session = session(Device::CPU);
    let scan = session.scan(ScanSource::Files(files), options(ReadOptions::default(), 0)).unwrap();
    let mut reader = scan.record_batches().unwrap();
    let errors: Vec<_> = reader.by_ref().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(errors.len() == 1 && errors[0].contains("missing.mini"), "{errors:?}");
    assert!(reader.next().is_none());
}
