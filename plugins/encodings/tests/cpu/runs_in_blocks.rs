//! Tests `fastlanes.rle`, where every block of 1024 values has its own dictionary.

use arrow_schema::DataType;

use crate::tree::{Node, Rig};

const VALUES: [i16; 5] = [10, -20, 30, 7, 8];

/// A node of 1500 values in two blocks. The node's first value is at position 2 of the first block.
/// The dictionaries of the blocks have three and two values.
fn sound() -> Node {
    let indices: Vec<u8> = (0..2048).map(|i| (if i < 1024 { i % 3 } else { i % 2 }) as u8).collect();
    Node {
        // The metadata states 5 values, 2048 indices of one byte, 2 offsets of 8 bytes, and 2
        // values before the node's first value.
        metadata: vec![0x08, 5, 0x10, 0x80, 0x10, 0x18, 0, 0x20, 2, 0x28, 3, 0x30, 2],
        children: vec![
            Node::words(DataType::Int16, &VALUES, i16::to_le_bytes),
            Node::words(DataType::UInt8, &indices, |index| [index]),
            Node::words(DataType::UInt64, &[0u64, 3], u64::to_le_bytes),
        ],
        ..Node::new("fastlanes.rle", DataType::Int16, 1500)
    }
}

#[test]
fn looks_up_the_dictionary_of_each_block() {
    let value = |i: usize| if i < 1024 { VALUES[i % 3] } else { VALUES[3 + i % 2] };
    let expected: Vec<_> = (2..1502).map(|i| value(i).to_string()).collect();
    assert_eq!(Rig::new().decode(&sound()).unwrap(), expected);
}

#[test]
fn null_indices_are_nulls() {
    let mut node = sound();
    node.nullable = true;
    let indices = node.children.remove(1).with_validity(vec![0b1011_1111; 256]);
    node.children.insert(1, indices);
    let decoded = Rig::new().decode(&node).unwrap();
    for (i, value) in (2..).zip(decoded) {
        assert_eq!(value == "null", i % 8 == 6, "{i}: {value}");
    }
}

#[test]
fn rejects_nodes_that_contradict_their_metadata() {
    let rig = Rig::new();
    rig.check(&sound()).unwrap();
    for (change, expected) in [
        ((|node| node.buffers.push(vec![1])) as fn(&mut Node), "the node has 1 buffers, expected 0"),
        (|node| drop(node.children.pop()), "the node has 2 children, expected 3"),
        (|node| node.metadata[1] = 4, "as values of blocks, the node has 5 values of int16, expected 4"),
        (
            |node| node.data_type = DataType::Int32,
            "as values of blocks, the node has 5 values of int16, expected 5 of int32",
        ),
        (|node| node.children[0].nullable = true, "as values of blocks, the node has a nullable type"),
        (
            |node| node.metadata[6] = 1,
            "as indices of values, the node has 2048 values of uint8, expected 2048 of uint16",
        ),
        (|node| node.children[1].len = 1024, "as indices of values, the node has 1024 values"),
        (
            |node| node.metadata[10] = 2,
            "as offsets of dictionaries, the node has 2 values of uint64, expected 2 of uint32",
        ),
        (|node| node.children[2].len = 1, "as offsets of dictionaries, the node has 1 values"),
        (|node| node.children[2].nullable = true, "as offsets of dictionaries, the node has a nullable type"),
    ] {
        let mut node = sound();
        change(&mut node);
        let message = rig.check(&node).unwrap_err().message().to_owned();
        assert!(message.contains(expected), "expected {expected:?}, got {message:?}");
    }
}
