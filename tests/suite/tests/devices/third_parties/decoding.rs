//! Tests the decoding of `example.xor` nodes on every device, as parents and children of nodes
//! whose encodings the shipped plugins decode.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, UInt16Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int8Array, Int64Array, UInt32Array};
use arrow_schema::{DataType, Field};
use crossdock::Table;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::tree::Node;
use crossdock_tests::{assert_rejected, crossdock, example_plugin};

use crate::third_parties::trees::{bit_packed, decoded, session};

/// Decodes the tree on each device, from buffers on this device and from buffers on the host, and
/// asserts that nothing leaks.
fn on_every_device(test: &str, node: &Node, assert: impl Fn(&ArrayRef, &str)) {
    let Some(plugin) = example_plugin(test) else { return };
    for &device in devices() {
        let session = session(&plugin, device);
        for of_buffers in [Device::CPU, device] {
            let array = decoded(&session, node.tree(&session, of_buffers));
            assert(&array, &format!("{device}, from buffers on {of_buffers}"));
        }
        session.stream().synchronize().unwrap();
        session.host().backend().trim();
        session.host().settle();
        let leaks = session.host().ledger().leaks();
        assert!(leaks.is_empty(), "{device}: {leaks:?}");
    }
}

fn equals(expected: impl Array + 'static) -> impl Fn(&ArrayRef, &str) {
    let expected: ArrayRef = Arc::new(expected);
    move |array, place| assert_eq!(**array, *expected, "{place}")
}

#[test]
fn floats_and_nulls_decode_bit_exactly() {
    let values = [1000.25, f64::NAN, -0.0, 999.5, f64::INFINITY];
    let reference = 1000f64.to_bits();
    let words: Vec<u64> = values.iter().map(|value| value.to_bits() ^ reference).collect();
    let words = Node::words(DataType::UInt64, &words, u64::to_ne_bytes).with_validity(vec![0b01111]);
    let node = Node::xor(DataType::Float64, &reference.to_le_bytes(), words);
    on_every_device("floats_and_nulls_decode_bit_exactly", &node, |array, place| {
        let array = array.as_primitive::<Float64Type>();
        let bits: Vec<_> = array.iter().map(|value| value.map(f64::to_bits)).collect();
        let expected = [1000.25, f64::NAN, -0.0, 999.5].map(|value: f64| Some(value.to_bits()));
        assert_eq!(bits, [&expected[..], &[None]].concat(), "{place}");
    });
}

#[test]
fn decodes_words_of_every_width() {
    let test = "decodes_words_of_every_width";
    let bytes: Vec<u8> = (0..=255).collect();
    let node = Node::xor(DataType::Int8, &[0x5a], Node::words(DataType::UInt8, &bytes, |byte| [byte]));
    on_every_device(test, &node, equals(Int8Array::from_iter_values(bytes.iter().map(|b| (b ^ 0x5a) as i8))));
    let halves: Vec<u16> = (0..1001).map(|i| i * 65).collect();
    let words = Node::words(DataType::UInt16, &halves, u16::to_ne_bytes);
    on_every_device(test, &Node::xor(DataType::UInt16, &[0x34, 0x12], words), |array, place| {
        let array = array.as_primitive::<UInt16Type>();
        assert!(array.values().iter().zip(&halves).all(|(value, half)| *value == half ^ 0x1234), "{place}");
    });
    let longs: Vec<u64> = (0..777u64).map(|i| i.wrapping_mul(0x0102_0304_0506_0708)).collect();
    let words = Node::words(DataType::UInt64, &longs, u64::to_ne_bytes);
    let node = Node::xor(DataType::Int64, &7u64.to_le_bytes(), words);
    on_every_device(test, &node, equals(Int64Array::from_iter_values(longs.iter().map(|l| (l ^ 7) as i64))));
}

#[test]
fn decodes_node_with_a_bit_packed_child() {
    let words: Vec<u32> = (0..3000).map(|i| i * 7 % 64).collect();
    let reference = 1.5f32.to_bits();
    let node = Node::xor(DataType::Float32, &reference.to_le_bytes(), bit_packed::<6>(&words));
    on_every_device("decodes_node_with_a_bit_packed_child", &node, |array, place| {
        let array = array.as_primitive::<Float32Type>();
        assert_eq!(array.len(), 3000, "{place}");
        let same = |(value, word): (&f32, &u32)| value.to_bits() == word ^ reference;
        assert!(array.values().iter().zip(&words).all(same), "{place}");
    });
}

#[test]
fn decodes_nodes_that_are_codes_and_values_of_a_dictionary() {
    let codes = Node::words(DataType::UInt8, &[3u8, 2, 1, 0, 3], |byte| [byte]);
    let codes = Node::xor(DataType::UInt8, &[3], codes);
    let values = Node::words(DataType::UInt32, &[10u32, 20, 30, 40], u32::to_ne_bytes);
    let values = Node::xor(DataType::UInt32, &[1, 0, 0, 0], values);
    // Field 1 of the protobuf message is the number of values; codes have 8 bits by default.
    let dictionary = Node {
        metadata: vec![0x08, 4],
        children: vec![codes, values],
        ..Node::new("vortex.dict", DataType::UInt32, 5)
    };
    let expected = UInt32Array::from(vec![11, 21, 31, 41, 11]);
    on_every_device("decodes_nodes_that_are_codes_and_values_of_a_dictionary", &dictionary, equals(expected));
}

#[test]
fn decodes_nested_nodes_within_a_reference_and_a_struct() {
    let words = Node::words(DataType::UInt32, &[1u32, 2, 3], u32::to_ne_bytes);
    let twice = Node::xor(DataType::UInt32, &[0, 0, 0, 0x80], words);
    let twice = Node::xor(DataType::Int32, &[0, 0, 0, 0x80], twice);
    // The reference is field 3 of a protobuf message, zigzag-encoded: 2000 means 1000.
    let above = Node {
        metadata: vec![0x18, 0xd0, 0x0f],
        children: vec![twice],
        ..Node::new("fastlanes.for", DataType::Int32, 3)
    };
    let fields = vec![Field::new("a", DataType::Int32, false)].into();
    let record = Node { children: vec![above], ..Node::new("vortex.struct", DataType::Struct(fields), 3) };
    let test = "decodes_nested_nodes_within_a_reference_and_a_struct";
    on_every_device(test, &record, |array, place| {
        let column = array.as_struct().column(0).as_primitive::<Int32Type>().clone();
        assert_eq!(column.values(), &[1001, 1002, 1003], "{place}");
    });
}

#[test]
fn decodes_empty_arrays() {
    let words = Node::words(DataType::UInt64, &[], u64::to_ne_bytes).with_validity(vec![]);
    let node = Node::xor(DataType::Float64, &[0; 8], words);
    on_every_device("decodes_empty_arrays", &node, equals(Float64Array::from(Vec::<f64>::new())));
}

#[test]
fn command_inspects_and_converts_tree_files_of_the_plugin() {
    let test = "command_inspects_and_converts_tree_files_of_the_plugin";
    let Some(plugin) = example_plugin(test) else { return };
    let session = session(&plugin, Device::CPU);
    let words: Vec<u32> = (0..2000).collect();
    let node = Node::xor(DataType::UInt32, &[0, 0, 0, 1], bit_packed::<11>(&words));
    let bytes = session.encoded_to_bytes(node.tree(&session, Device::CPU)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (tree, table, plugin) = (path("tree.cdenc"), path("table.arrow"), plugin.to_str().unwrap());
    std::fs::write(&tree, bytes).unwrap();

    let shown = String::from_utf8(crossdock(&["inspect", &tree, "--plugins", plugin]).stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("example.xor")).unwrap_or_default();
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells, ["example.xor", "2,000", "00000001", "-", "example", "uint32"], "{shown}");
    let without = crossdock(&["convert", &tree, &table, "--quiet"]);
    assert_rejected(&without, &["no plugin of the session decodes 'example.xor'"], table.as_ref());
    let out = crossdock(&["convert", &tree, &table, "--plugins", plugin, "--quiet"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read = Table::read(&session, &table).unwrap().to_record_batches().unwrap();
    let expected = UInt32Array::from_iter_values(words.iter().map(|word| word ^ 1 << 24));
    assert_eq!(**read[0].column(0), expected);
}

#[test]
fn command_lists_the_plugin_and_its_encoding() {
    let Some(plugin) = example_plugin("command_lists_the_plugin_and_its_encoding") else { return };
    let plugin = plugin.to_str().unwrap();
    let out = crossdock(&["plugins", "--explain", "--plugins", plugin]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("example 0.1.0") && text.contains("  decodes: example.xor\n"), "{text}");
    let out = crossdock(&["inspect", plugin]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("example.xor") && text.contains("loads here   yes"), "{text}");
}
