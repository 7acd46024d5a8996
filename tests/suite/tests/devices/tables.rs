//! Tests how host applications exchange tables through the shipped plugins: as bytes in memory, in
//! capsules, and with selected columns.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock::api::{Capsule, Device, Options};
use crossdock::memory::Backend;
use crossdock::{ColumnSlice, Error, Host, IpcForm, Session, Table};
use crossdock_test_support::devices;
use crossdock_tests::{assert_rejected, built, crossdock, sample};

pub fn host() -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).build().unwrap()
}

pub fn session(host: &Host, device: Device) -> Session {
    host.session().device(device).open().unwrap()
}

fn schema() -> SchemaRef {
    let metadata = HashMap::from([("created by".to_string(), "test".to_string())]);
    let fields = vec![
        Field::new("n", DataType::Int64, true),
        Field::new("word", DataType::Utf8, true),
        Field::new("flag", DataType::Boolean, false),
    ];
    Arc::new(Schema::new_with_metadata(fields, metadata))
}

/// A table of two batches.
fn table(session: &Session) -> Table {
    let part = |n: i64, word: &str| {
        let (numbers, words) = ([n, n + 1, n + 2], [word, "", "three"]);
        let columns = [
            ColumnSlice::new(&numbers[..]).with_validity(&[true, false, true]),
            ColumnSlice::new(&words[..]).with_validity(&[true, true, false]),
            ColumnSlice::new(&[true, false, true][..]),
        ];
        Table::from_columns(session, schema(), &columns).unwrap()
    };
    let batches = [part(1, "one"), part(-7, "another")].iter().flat_map(|t| t.batches().to_vec()).collect();
    Table::from_batches(session, schema(), batches).unwrap()
}

pub fn assert_equal(actual: &Table, expected: &Table) {
    assert_eq!(actual.schema(), expected.schema());
    assert_eq!(actual.to_record_batches().unwrap(), expected.to_record_batches().unwrap());
}

#[test]
fn tables_round_trip_through_ipc_bytes_on_every_device() {
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let table = table(&session);
        for (form, head) in [(IpcForm::File, &b"ARROW1\0\0"[..]), (IpcForm::Stream, b"\xff\xff\xff\xff")] {
            let bytes = table.to_ipc_bytes(form).unwrap();
            assert!(bytes.starts_with(head), "{form:?}");
            let back = Table::from_ipc_bytes(&session, bytes).unwrap();
            assert!(back.batches().iter().all(|batch| batch.device() == device), "{form:?}");
            assert_equal(&back, &table);
        }
        drop((table, session));
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn malformed_ipc_bytes_are_an_error_of_the_plugin() {
    let host = host();
    let session = session(&host, Device::CPU);
    let whole = table(&session).to_ipc_bytes(IpcForm::Stream).unwrap();
    for bytes in [b"no Arrow at all".to_vec(), whole[..whole.len() / 2].to_vec()] {
        let error = Table::from_ipc_bytes(&session, bytes).err().unwrap();
        assert!(matches!(error, Error::Plugin { .. }), "{error:?}");
        assert!(error.one_line().contains("arrow-ipc"), "{}", error.one_line());
    }
}

#[test]
fn device_arrays_in_capsules_are_read_as_batches() {
    for device in devices().iter().copied() {
        let host = host();
        let session = session(&host, device);
        let table = table(&session);
        for (i, (array, schema)) in table.to_device_record_batches().unwrap().into_iter().enumerate() {
            let capsules = vec![Capsule::new(schema), Capsule::new(array)];
            let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
            assert_eq!((reader.plugin().name(), reader.format()), ("arrow-c-device", "arrow-c-device"));
            let back = Table::from_reader(&session, reader).unwrap();
            assert_eq!(back.batches().len(), 1);
            let expected = table.batches()[i..=i].to_vec();
            assert_equal(&back, &Table::from_batches(&session, table.schema().clone(), expected).unwrap());
        }
        drop((table, session));
        assert_eq!(host.settle(), []);
    }
}

#[test]
fn rejects_capsules_of_unreadable_formats_and_wrong_numbers_of_capsules() {
    let host = host();
    let session = session(&host, Device::CPU);
    let read = |format: &str, capsules| {
        let error = session.read_capsules(format, capsules, None, &Options::new()).err().unwrap();
        (matches!(error, Error::Usage(_)), error.one_line())
    };
    for format in ["arrow-c-dream", "arrow-ipc-file"] {
        let (is_usage, line) = read(format, Vec::new());
        assert!(is_usage && line.contains(&format!("format {format}: ")), "{line}");
    }
    let (array, schema) = table(&session).to_device_record_batches().unwrap().remove(0);
    let (is_usage, line) = read("arrow-c-stream", vec![Capsule::new(schema), Capsule::new(array)]);
    assert!(!is_usage && line.contains("2 capsules, expected one stream"), "{line}");
    drop(session);
    assert_eq!(host.settle(), [], "rejected capsules are released");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn selected_columns_are_written_in_the_requested_order() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.arrow");
    let sample = sample();
    for vias in [&[][..], &["--via", "arrow-c-device"]] {
        let arguments = ["convert", text(&sample), text(&output), "--columns", "origin,dep_delay", "--quiet"];
        assert!(crossdock(&[&arguments[..], vias].concat()).status.success());
        let host = host();
        let session = session(&host, Device::CPU);
        let (chosen, whole) =
            (Table::read(&session, &output).unwrap(), Table::read(&session, &sample).unwrap());
        let indices = ["origin", "dep_delay"].map(|name| whole.schema().index_of(name).unwrap());
        let project = |batch: &arrow_array::RecordBatch| batch.project(&indices).unwrap();
        let expected: Vec<_> = whole.to_record_batches().unwrap().iter().map(project).collect();
        assert_eq!(chosen.to_record_batches().unwrap(), expected);
    }
}

#[test]
fn error_for_missing_column_lists_the_existing_columns() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.arrow");
    let mut out = crossdock(&["convert", text(&sample()), text(&output), "--columns", "origin,nowhere"]);
    assert_eq!(out.status.code(), Some(2));
    out.status = std::os::unix::process::ExitStatusExt::from_raw(1 << 8);
    assert_rejected(&out, &["'nowhere'", "origin", "dep_delay"], &output);
}

#[test]
fn stdout_defaults_to_a_stream_and_files_need_an_extension() {
    let sample = sample();
    let stream = crossdock(&["convert", text(&sample), "-", "--quiet"]).stdout;
    let named = crossdock(&["convert", text(&sample), "-", "--quiet", "--to", "arrow-ipc-stream"]).stdout;
    assert!(stream.starts_with(b"\xff\xff\xff\xff") && stream == named);
    let file = crossdock(&["convert", text(&sample), "-", "--quiet", "--to", "arrow-ipc-file"]).stdout;
    assert!(file.starts_with(b"ARROW1"));
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("ends with -");
    let out = crossdock(&["convert", text(&sample), text(&output)]);
    assert_eq!(out.status.code(), Some(2), "a dash at the end of a name is not a file extension");
    assert!(String::from_utf8_lossy(&out.stderr).contains("--to"));
}
