//! Tests the values of dictionaries, and which of their codes are decoded before the dictionary.

use arrow_schema::DataType;
use crossdock_memory::Device;
use crossdock_plugin_api::Operator;

use crate::tree::{Node, Rig};

const VALUES: [i32; 5] = [70, -1, 1 << 20, 0, 9];
const ROWS: usize = 1500;

fn codes() -> Vec<u8> {
    (0..ROWS).map(|i| (i * 7 % VALUES.len()) as u8).collect()
}

fn values() -> Node {
    Node::words(DataType::Int32, &VALUES, i32::to_le_bytes)
}

/// A dictionary node. `ptype` is the type number of its codes.
fn dictionary(codes: Node, ptype: u8, values: Node) -> Node {
    Node {
        nullable: codes.nullable || values.nullable,
        metadata: vec![0x08, values.len as u8, 0x10, ptype],
        ..Node::new("vortex.dict", values.data_type.clone(), codes.len as usize)
    }
    .above(vec![codes, values])
}

impl Node {
    fn above(self, children: Vec<Node>) -> Self {
        Self { children, ..self }
    }
}

fn expected() -> Vec<String> {
    codes().iter().map(|code| VALUES[usize::from(*code)].to_string()).collect()
}

#[test]
fn host_looks_up_packed_codes_while_unpacking() {
    let rig = Rig::new();
    let packed = dictionary(Node::packed(&codes(), 3), 0, values());
    assert_eq!(rig.plan(&packed, Device::CPU).decoded, [false, true]);
    assert_eq!(rig.plan(&packed, Device::UNTOUCHABLE).decoded, [true, true]);
    assert_eq!(rig.decode(&packed).unwrap(), expected());
}

#[test]
fn decodes_unpacked_codes_first() {
    let rig = Rig::new();
    let plain = dictionary(Node::words(DataType::UInt8, &codes(), |code| [code]), 0, values());
    assert_eq!(rig.plan(&plain, Device::CPU).decoded, [true, true]);
    assert_eq!(rig.decode(&plain).unwrap(), expected());
}

#[test]
fn decodes_patched_codes_first() {
    let rig = Rig::new();
    // Codes are packed to two bits, so every code 4 is truncated to 0. Patches restore these codes.
    // The indices of the patches have 2 bytes.
    let mut packed = Node::packed(&codes().iter().map(|code| code & 3).collect::<Vec<_>>(), 2);
    let at: Vec<u16> = (0..ROWS).filter(|i| codes()[*i] == 4).map(|i| i as u16).collect();
    packed.metadata.extend([0x1a, 7, 0x08, (at.len() & 0x7f) as u8 | 0x80, (at.len() >> 7) as u8, 0x10, 0]);
    packed.metadata.extend([0x18, 1]);
    packed.children = vec![
        Node::words(DataType::UInt16, &at, u16::to_le_bytes),
        Node::words(DataType::UInt8, &vec![4u8; at.len()], |code| [code]),
    ];
    let patched = dictionary(packed, 0, values());
    assert_eq!(rig.plan(&patched, Device::CPU).decoded, [true, false, false, true]);
    assert_eq!(rig.decode(&patched).unwrap(), expected());
}

#[test]
fn decodes_codes_of_nullable_and_bool_values_first() {
    let rig = Rig::new();
    let with_nulls = dictionary(Node::packed(&codes(), 3), 0, values().with_validity(vec![0b11101]));
    assert_eq!(rig.plan(&with_nulls, Device::CPU).decoded, [true, true, false]);
    let pairs = expected().into_iter().zip(codes());
    let with_nulls_expected: Vec<_> =
        pairs.map(|(value, code)| if code == 1 { "null".into() } else { value }).collect();
    assert_eq!(rig.decode(&with_nulls).unwrap(), with_nulls_expected);

    let bools = Node { buffers: vec![vec![0b01001]], ..Node::new("vortex.bool", DataType::Boolean, 5) };
    let bools = dictionary(Node::packed(&codes(), 3), 0, bools);
    assert_eq!(rig.plan(&bools, Device::CPU).decoded, [true, true]);
    let truths: Vec<_> = codes().iter().map(|code| (*code == 0 || *code == 3).to_string()).collect();
    assert_eq!(rig.decode(&bools).unwrap(), truths);
}

#[test]
fn decodes_signed_codes_first() {
    let rig = Rig::new();
    let signed = Node { data_type: DataType::Int8, ..Node::packed(&codes(), 3) };
    // Type number 4 is i8.
    let signed = dictionary(signed, 4, values());
    assert_eq!(rig.plan(&signed, Device::CPU).decoded, [true, true]);
    assert_eq!(rig.decode(&signed).unwrap(), expected());
}

#[test]
fn rejects_dictionaries_that_contradict_their_metadata() {
    let rig = Rig::new();
    let sound = || dictionary(Node::words(DataType::UInt8, &codes(), |code| [code]), 0, values());
    rig.check(&sound()).unwrap();
    let error_after = |change: fn(&mut Node)| {
        let mut node = sound();
        change(&mut node);
        rig.check(&node).unwrap_err().message().to_owned()
    };
    for (change, expected) in [
        ((|node| node.buffers.push(vec![1])) as fn(&mut Node), "the node has 1 buffers, expected 0"),
        (|node| drop(node.children.pop()), "the node has 1 children, expected 2"),
        (
            |node| node.metadata[1] = 4,
            "as the dictionary's values, the node has 5 values of int32, expected 4",
        ),
        (|node| node.metadata[3] = 1, "as codes, the node has 1500 values of uint8, expected 1500 of uint16"),
        (|node| node.len = 1499, "as codes, the node has 1500 values of uint8, expected 1499"),
        (|node| node.data_type = DataType::Int64, "values of int32, expected 5 of int64"),
        (|node| node.metadata = vec![8], "vortex.dict"),
    ] {
        let message = error_after(change);
        assert!(message.contains(expected), "expected {expected:?}, got {message:?}");
    }
}

#[test]
fn dictionary_of_run_end_codes_has_no_program() {
    let rig = Rig::new();
    let bytes = |bytes: &[u8]| Node::words(DataType::UInt8, bytes, |byte| [byte]);
    let program = vec![Operator::Dictionary { codes: 0, values: 1 }];
    assert_eq!(rig.lower(&dictionary(bytes(&[1, 0]), 0, values())), Some(program));
    let metadata = vec![0x08, 0, 0x10, 2];
    let runs = Node { metadata, ..Node::new("vortex.runend", DataType::UInt8, 5) };
    let runs = runs.above(vec![bytes(&[2, 5]), bytes(&[1, 0])]);
    assert_eq!(rig.lower(&dictionary(runs, 0, values())), None);
}
