//! Tests of tables and scans as readers of arrow-rs and as Arrow's C streams.

use std::sync::Arc;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchReader, StringArray};
use crossdock::api::{Device, Owned, abi};
use crossdock::{Host, ReadOptions, ScanOptions, ScanSource, Session, Table};
use crossdock_arrays::{Arrays, DeviceStream, import_field};
use crossdock_test_support::devices;

use crate::common::{mini, temporary};

fn session(host: &Host, device: Device) -> Session {
    host.session().device(device).open().unwrap()
}

fn batches() -> Vec<RecordBatch> {
    let batch = |numbers: Vec<Option<i32>>, texts: Vec<&str>| {
        let numbers = Arc::new(Int32Array::from(numbers)) as ArrayRef;
        let texts = Arc::new(StringArray::from(texts)) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([("number", numbers, true), ("text", texts, false)]).unwrap()
    };
    vec![batch(vec![Some(1), None, Some(3)], vec!["a", "", "long"]), batch(vec![None], vec!["b"])]
}

fn table(host: &Host, device: Device) -> Table {
    let batches = batches();
    Table::from_record_batches(&session(host, device), batches[0].schema(), &batches).unwrap()
}

/// The stream as a reader of arrow-rs.
fn reader(stream: Owned<abi::ArrowArrayStream>) -> RecordBatchStreamReader {
    let mut raw = stream.into_raw();
    // SAFETY: both structs are Arrow's C stream, and the reader takes the ownership of the valid
    // stream.
    unsafe { RecordBatchStreamReader::from_raw(std::ptr::from_mut(&mut raw).cast::<FFI_ArrowArrayStream>()) }
        .unwrap()
}

/// The stream's batches as a table of a new session of the device.
fn table_of(stream: Owned<abi::ArrowDeviceArrayStream>, host: &Host, device: Device) -> Table {
    let mut stream = DeviceStream::new(stream);
    let field = import_field(&stream.schema().unwrap()).unwrap();
    Table::from_device_arrays(&session(host, device), field, &mut stream).unwrap()
}

#[test]
fn table_is_a_reader_of_arrow_rs_and_streams_may_outlive_it() {
    for device in devices().iter().copied() {
        let (reader_of_table, stream) = {
            let table = table(&mini::host(), device);
            (table.record_batches(), table.to_c_stream())
        };
        // The memory of the test device is known only to its host.
        let host = mini::host();
        let device_stream = table(&host, device).to_c_device_stream();
        let boxed: Box<dyn RecordBatchReader + Send> = Box::new(reader_of_table);
        assert_eq!(boxed.schema(), batches()[0].schema());
        assert_eq!(boxed.collect::<Result<Vec<_>, _>>().unwrap(), batches(), "{device}");

        let reader = reader(stream);
        assert_eq!(reader.schema(), batches()[0].schema());
        assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), batches(), "{device}");

        let again = table_of(device_stream, &host, device);
        assert_eq!(again.device(), device);
        assert_eq!(again.to_record_batches().unwrap(), batches(), "{device}");
    }
}

#[test]
fn c_streams_of_a_scan_read_batches_when_they_are_needed_and_report_errors() {
    let folder = temporary();
    let (good, missing) = (folder.path().join("good.mini"), folder.path().join("missing.mini"));
    std::fs::write(&good, mini::bytes(&[1, 2, 3])).unwrap();
    for device in devices().iter().copied() {
        let session = session(&mini::host(), device);
        let options = ScanOptions { read: ReadOptions::default(), prefetch: 0, ..ScanOptions::default() };
        let source = ScanSource::Files(vec![good.clone(), missing.clone()]);
        let scan = session.scan(source, options).unwrap();
        let mut batches = reader(scan.to_c_stream().unwrap());
        assert_eq!(batches.next().unwrap().unwrap().num_rows(), 3);
        let error = batches.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("missing.mini"), "{error}");

        let mut arrays = DeviceStream::new(scan.to_c_device_stream().unwrap());
        let array = arrays.next().unwrap().unwrap();
        let got = Device::from_arrow(array.device_type, array.device_id);
        assert_eq!((array.array.length, got), (3, device));
        assert!(arrays.next().is_err());
    }
}
