//! Tests that `crossdock convert` converts files with encodings of third-party plugins on every
//! device that the command supports.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, Float64Array};
use arrow_schema::DataType;
use crossdock::Table;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{assert_rejected, crossdock, csv_plugin, example_plugin};

use crate::third_parties::trees::{bit_packed, session};

/// Writes the tree to a file and converts the file. Without the plugin the command must reject the
/// file. With the plugin, the table must be the same on every device.
fn assert_converted(plugin: &Path, node: &Node, expected: impl Array + 'static) {
    let expected: ArrayRef = Arc::new(expected);
    let session = session(plugin, Device::CPU);
    let bytes = node.to_bytes(&session);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let tree = path("tree.cdenc");
    std::fs::write(&tree, bytes).unwrap();
    // The command does not support the test device `untouchable`.
    for device in devices().iter().filter(|device| **device != Device::UNTOUCHABLE) {
        let (device, table) = (device.to_string(), path(&format!("{device}.arrow").replace(':', "-")));
        let convert = ["convert", &tree, &table, "--device", &device, "--quiet"];
        let unknown = format!("no plugin of the session decodes '{}'", node.id);
        assert_rejected(&crossdock(&convert), &[unknown.as_str()], table.as_ref());
        let out = crossdock(&[&convert[..], &["--plugins", plugin.to_str().unwrap()]].concat());
        // stderr must be empty, because the simulated driver reports unordered accesses there.
        assert!(out.status.success() && out.stderr.is_empty(), "{device}: {out:?}");
        let read = Table::read(&session, &table).unwrap().to_record_batches().unwrap();
        assert_eq!(read.len(), 1, "{device}");
        assert_eq!(**read[0].column(0), *expected, "{device}");
    }
}

/// Returns a validity bitmap of 3000 rows, in which every seventh row is null, and a function that
/// tests whether a row is valid.
fn validity() -> (Vec<u8>, impl Fn(usize) -> bool) {
    let is_valid = |i: usize| !i.is_multiple_of(7);
    let mut bits = vec![0; 375];
    (0..3000).filter(|i| is_valid(*i)).for_each(|i| bits[i / 8] |= 1 << (i % 8));
    (bits, is_valid)
}

#[test]
fn rust_encoding_is_converted_on_every_device() {
    let Some(plugin) = example_plugin("rust_encoding_is_converted_on_every_device") else {
        return;
    };
    let (bits, is_valid) = validity();
    let words: Vec<u32> = (0..3000).map(|i| i * 7 % 512).collect();
    let reference = 1.5f32.to_bits();
    let node =
        Node::xor(DataType::Float32, &reference.to_le_bytes(), bit_packed::<9>(&words).with_validity(bits));
    let value = |(i, word): (usize, &u32)| is_valid(i).then(|| f32::from_bits(word ^ reference));
    assert_converted(&plugin, &node, words.iter().enumerate().map(value).collect::<Float32Array>());
}

#[test]
fn c_encoding_is_converted_on_every_device() {
    let (bits, is_valid) = validity();
    let integers: Vec<i64> = (0..3000).map(|i| i * 7919 - 1_000_000).collect();
    let words = Node::words(DataType::Int64, &integers, i64::to_ne_bytes).with_validity(bits);
    let node = Node::scaled(DataType::Float64, &0.25f64.to_le_bytes(), words);
    let value = |(i, integer): (usize, &i64)| is_valid(i).then_some(*integer as f64 * 0.25);
    assert_converted(&csv_plugin(), &node, integers.iter().enumerate().map(value).collect::<Float64Array>());
}
