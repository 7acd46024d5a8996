//! Tests the plugin in a host.

use std::path::PathBuf;

use arrow_schema::{DataType, Field};
use crossdock::discovery::Search;
use crossdock::{Host, Session};
use crossdock_arrays::export_field;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts};

/// The library that Cargo built next to this test.
fn plugin() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .with_file_name("libcrossdock_@SNAKE@_plugin.so")
}

fn session() -> Session {
    let host = Host::builder()
        .search(Search::nowhere().with_path(plugin()))
        .build()
        .unwrap();
    host.session().open().unwrap()
}

fn buffer(session: &Session, values: &[i32]) -> Buffer {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(&bytes);
        Ok(())
    };
    session
        .memory()
        .alloc_with(session.stream(), bytes.len(), fill)
        .unwrap()
        .freeze_now()
}

fn array(session: &Session, len: u64, reference: &[u8], stored: &[i32]) -> EncodedArray {
    let field = Field::new("", DataType::Int32, false);
    let node = NodeParts {
        encoding: "@ID@".into(),
        logical_type: LogicalType::Schema(export_field(&field).unwrap()),
        length: len,
        metadata: reference.into(),
        n_buffers: 1,
        n_children: 0,
    };
    EncodedArray::new(vec![node], vec![buffer(session, stored).to_encoded()]).unwrap()
}

#[test]
fn decodes_stored_values() {
    let session = session();
    let array = array(&session, 3, &1000i32.to_le_bytes(), &[1, -2, 0]);
    let batch = session.decode(array).unwrap();
    let values = batch.column(0).unwrap().buffers()[1].clone().unwrap();
    let values = values.host_view(session.stream()).unwrap();
    let values: Vec<i32> = values
        .as_chunks()
        .0
        .iter()
        .map(|bytes| i32::from_ne_bytes(*bytes))
        .collect();
    assert_eq!(values, [1001, 998, 1000]);
}

#[test]
fn decodes_some_rows() {
    let session = session();
    let array = array(&session, 3, &1000i32.to_le_bytes(), &[1, -2, 0]);
    let batch = session.decode_rows(array, 1..3).unwrap();
    let values = batch.column(0).unwrap().buffers()[1].clone().unwrap();
    let values = values.host_view(session.stream()).unwrap();
    assert_eq!(values.as_chunks().0, [998, 1000].map(i32::to_ne_bytes));
}

#[test]
fn rejects_malformed_nodes() {
    let session = session();
    for (len, reference, expected) in [
        (4, &[0; 4][..], "8 bytes, expected 4 for each of 4 values"),
        (2, &[0; 3], "4 bytes of metadata"),
    ] {
        let line = session
            .decode(array(&session, len, reference, &[1, 2]))
            .err()
            .unwrap()
            .one_line();
        assert!(line.contains(expected) && line.contains("@ID@"), "{line}");
    }
}
