//! Tests dictionaries with bit-packed codes on every device. The codes are unpacked and looked up
//! either in one pass or in two.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, UInt32Array};
use arrow_schema::DataType;
use crossdock_plugin_api::Device;
use crossdock_test_support::devices;
use crossdock_tests::csv_plugin;
use crossdock_tests::tree::Node;

use crate::third_parties::trees::{decoded, packed, session};

fn dictionary(codes: Node, values: Node) -> Node {
    // Field 1 of the protobuf message is the number of values; field 2 is the type of the codes,
    // which have 8 bits by default. In this test, they may also have 16 bits.
    let n = values.len;
    let mut metadata = vec![0x08, (n % 128) as u8 | 0x80, (n / 128) as u8];
    metadata.extend(if codes.data_type == DataType::UInt16 { vec![0x10, 1] } else { vec![] });
    let nullable = codes.nullable || values.nullable;
    let (data_type, len) = (values.data_type.clone(), codes.len);
    Node { metadata, nullable, children: vec![codes, values], ..Node::new("vortex.dict", data_type, len) }
}

fn assert_decoded(node: &Node, expected: impl Array + 'static) {
    let expected: ArrayRef = Arc::new(expected);
    for &device in devices() {
        let session = session(&csv_plugin(), device);
        for of_buffers in [Device::CPU, device] {
            let array = decoded(&session, node.tree(&session, of_buffers));
            assert_eq!(*array, *expected, "{device}, from buffers on {of_buffers}");
        }
    }
}

fn tens(n: u32) -> Node {
    Node::words(DataType::UInt32, &(0..n).map(|i| i * 10).collect::<Vec<_>>(), u32::to_ne_bytes)
}

#[test]
fn looks_up_one_byte_codes_in_blocks_of_any_length() {
    for n in [1, 1023, 1024, 1025, 5000] {
        let codes: Vec<u32> = (0..n).map(|i| i * 7 % 50).collect();
        let node = dictionary(packed(DataType::UInt8, 6, &codes), tens(50));
        assert_decoded(&node, UInt32Array::from_iter_values(codes.iter().map(|code| code * 10)));
    }
}

#[test]
fn ignores_codes_of_nulls() {
    let n = 3000;
    let is_valid = |i: u32| i % 3 != 1;
    // The codes of nulls are out of range, so that a lookup of such a code would fail.
    let codes: Vec<u32> = (0..n).map(|i| if is_valid(i) { i % 300 } else { 511 }).collect();
    let bits =
        (0..n.div_ceil(8)).map(|byte| (0..8).map(|bit| u8::from(is_valid(byte * 8 + bit)) << bit).sum());
    let codes = packed(DataType::UInt16, 9, &codes).with_validity(bits.collect());
    let values: Vec<f64> = (0..300).map(|i| f64::from(i) / 4.0).collect();
    let node = dictionary(codes, Node::words(DataType::Float64, &values, f64::to_ne_bytes));
    assert_decoded(
        &node,
        Float64Array::from_iter((0..n).map(|i| is_valid(i).then(|| f64::from(i % 300) / 4.0))),
    );
}

#[test]
fn codes_that_select_a_null_value_decode_to_null() {
    let codes: Vec<u32> = (0..2000).map(|i| i % 4).collect();
    let node = dictionary(packed(DataType::UInt8, 2, &codes), tens(4).with_validity(vec![0b1011]));
    assert_decoded(&node, UInt32Array::from_iter(codes.iter().map(|code| (*code != 2).then_some(code * 10))));
}

#[test]
fn decodes_codes_with_a_reference_and_codes_of_zero_bits() {
    let low: Vec<u32> = (0..2500).map(|i| i % 8).collect();
    // The reference of unsigned integers is field 4 of a protobuf message, without zigzag encoding.
    let codes = Node {
        metadata: vec![0x20, 3],
        children: vec![packed(DataType::UInt8, 3, &low)],
        ..Node::new("fastlanes.for", DataType::UInt8, 2500)
    };
    let expected = UInt32Array::from_iter_values(low.iter().map(|code| (code + 3) * 10));
    assert_decoded(&dictionary(codes, tens(11)), expected);
    let none = packed(DataType::UInt8, 0, &[0; 1500]);
    assert_decoded(&dictionary(none, tens(3)), UInt32Array::from_iter_values([0; 1500]));
}

#[test]
fn out_of_range_code_is_reported_with_its_index() {
    let mut codes = vec![1u32; 4000];
    codes[1500] = 5;
    codes[3999] = 6;
    let node = dictionary(packed(DataType::UInt8, 3, &codes), tens(5));
    for &device in devices() {
        let session = session(&csv_plugin(), device);
        let line = session.decode(node.tree(&session, device)).unwrap_err().one_line();
        assert!(line.contains("vortex.dict") && line.contains("1500"), "{device}: {line}");
    }
}

#[test]
fn error_in_a_fused_pass_names_only_the_failing_plugin() {
    let values = Node::words(DataType::Int32, &[7i32; 5], i32::to_ne_bytes);
    let inner = dictionary(packed(DataType::UInt8, 3, &[6; 2000]), values);
    let scale = 2f32.to_le_bytes().to_vec();
    let node = Node {
        metadata: scale,
        children: vec![inner],
        ..Node::new("example.scaled", DataType::Float32, 2000)
    };
    for &device in devices() {
        let session = session(&csv_plugin(), device);
        let line = session.decode(node.tree(&session, device)).unwrap_err().one_line();
        assert!(line.contains("encodings ") && !line.contains("csv "), "{device}: {line}");
        assert!(line.contains("vortex.dict") && line.contains("below 5"), "{device}: {line}");
    }
}
