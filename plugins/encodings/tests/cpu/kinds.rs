//! Tests the values, sizes and errors of a small node of each encoding.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::tree::{Node, Rig};

/// A validity bitmap in which three of five values are valid.
const VALID: u8 = 0b10101;

fn int32(values: &[i32]) -> Node {
    Node::words(DataType::Int32, values, i32::to_le_bytes)
}

fn uint8(values: &[u8]) -> Node {
    Node::words(DataType::UInt8, values, |value| [value])
}

fn over(id: &'static str, data_type: DataType, len: usize, metadata: &[u8], children: Vec<Node>) -> Node {
    Node { metadata: metadata.to_vec(), children, ..Node::new(id, data_type, len) }
}

fn bits(bytes: &[u8], len: usize) -> Node {
    Node { buffers: vec![bytes.to_vec()], ..Node::new("vortex.bool", DataType::Boolean, len) }
}

fn nullable(node: Node) -> Node {
    Node { nullable: true, ..node }
}

/// `ten`, an empty text, and a text that is too long for a view.
fn texts() -> Node {
    let offsets = int32(&[0, 3, 3, 20]);
    let node = over("vortex.varbin", DataType::Utf8View, 3, &[0x08, 6], vec![offsets]);
    Node { buffers: vec![b"tenmore than a view h".to_vec()], ..node }
}

fn struct_of(children: Vec<Node>, len: usize) -> Node {
    let fields = children
        .iter()
        .enumerate()
        .map(|(i, child)| Field::new(format!("f{i}"), child.data_type.clone(), child.nullable));
    let data_type = DataType::Struct(Fields::from(fields.collect::<Vec<_>>()));
    over("vortex.struct", data_type, len, &[], children)
}

/// Maps of one and of two entries.
fn maps() -> Node {
    let fields = [Field::new("key", DataType::Int32, false), Field::new("value", DataType::Int32, false)];
    let entries = Field::new("entries", DataType::Struct(Fields::from(fields.to_vec())), false);
    let mut pairs = struct_of(vec![int32(&[1, 3, 5]), int32(&[2, 4, 6])], 3);
    pairs.data_type = entries.data_type().clone();
    let lists = DataType::List(Arc::new(entries.clone()));
    let lists = over("vortex.list", lists, 2, &[0x08, 3, 0x10, 0], vec![pairs, uint8(&[0, 1, 3])]);
    over("vortex.map", DataType::Map(Arc::new(entries), false), 2, &[], vec![lists])
}

/// Two values of a block whose values are all 7.
fn delta() -> Node {
    let words = |words: &[u32]| Node::words(DataType::UInt32, words, u32::to_le_bytes);
    // 1024 differences.
    over(
        "fastlanes.delta",
        DataType::UInt32,
        2,
        &[0x08, 0x80, 0x08],
        vec![words(&[7; 32]), words(&[0; 1024])],
    )
}

/// Floats whose left 16 bits are in a dictionary of two left parts. The last float is patched.
fn split_floats() -> Node {
    let halves = |words: &[u16]| Node::words(DataType::UInt16, words, u16::to_le_bytes);
    let rights = Node::words(DataType::UInt32, &[0u32, 0, 0x4000, 0], u32::to_le_bytes);
    let metadata = [
        // The metadata states right parts of 16 bits, the two left parts 0x3fc0 and 0x4020, and
        // codes of 16 bits.
        &[0x08, 16, 0x10, 2, 0x18, 0xc0, 0x7f, 0x18, 0xa0, 0x80, 0x01, 0x20, 1][..],
        // The metadata states one patch, with an index of one byte.
        &[0x2a, 4, 0x08, 1, 0x18, 0],
    ]
    .concat();
    let children = vec![halves(&[0, 1, 1, 0]), rights, uint8(&[3]), halves(&[0xbfc0])];
    over("vortex.alprd", DataType::Float32, 4, &metadata, children)
}

/// An inline text, and a text that is too long for its view.
fn views() -> Node {
    let short = [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = [17, 0, 0, 0, b'm', b'o', b'r', b'e', 0, 0, 0, 0, 3, 0, 0, 0];
    let buffers = vec![b"ab more than a view ".to_vec(), [short, long].concat()];
    Node { buffers, ..Node::new("vortex.varbinview", DataType::Utf8View, 2) }
}

fn list_type() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Int32, false)))
}

/// A node of each encoding, its values, and its size in bytes.
fn samples() -> Vec<(Node, &'static [&'static str], Option<u64>)> {
    let chunked =
        vec![Node::words(DataType::UInt64, &[0u64, 2, 3], u64::to_le_bytes), int32(&[7, 8]), int32(&[-9])];
    let fixed = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), 2);
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    let times = vec![int32(&[0, 1]), int32(&[5, 0]), int32(&[250, 1])];
    let sparse = over(
        "vortex.sparse",
        DataType::Int32,
        5,
        // The metadata states two patches, with indices of one byte, and an offset of one value.
        &[0x0a, 6, 0x08, 2, 0x10, 1, 0x18, 0],
        vec![uint8(&[2, 5]), int32(&[20, 50])],
    );
    // Fill values: -1 as a signed integer, and null.
    let (minus_one, null) = (vec![0x18, 1], vec![0x08, 0]);
    let null_filled = nullable(Node { buffers: vec![null.clone()], ..sparse.clone() });
    let null_filled = {
        let mut node = null_filled;
        node.children[1].nullable = true;
        node
    };
    vec![
        (int32(&[1, -2]), &["1", "-2"], Some(0)),
        (int32(&[1, 2, 3, 4, 5]).with_validity(vec![VALID]), &["1", "null", "3", "null", "5"], Some(0)),
        (
            Node { metadata: vec![0x08, 3], ..bits(&[0b0110_1000, 1], 6) },
            &["true", "false", "true", "true", "false", "true"],
            Some(0),
        ),
        (Node::new("vortex.null", DataType::Null, 2), &["null", "null"], Some(0)),
        (
            struct_of(vec![int32(&[1, 2]), bits(&[0b01], 2)], 2),
            &["{f0: 1, f1: true}", "{f0: 2, f1: false}"],
            Some(0),
        ),
        (
            over("vortex.ext", DataType::Date32, 2, &[], vec![int32(&[0, 1])]),
            &["1970-01-01", "1970-01-02"],
            Some(0),
        ),
        (over("vortex.chunked", DataType::Int32, 3, &[], chunked), &["7", "8", "-9"], Some(13)),
        (
            over(
                "vortex.list",
                list_type(),
                2,
                &[0x08, 3, 0x10, 0],
                vec![int32(&[1, 2, 3]), uint8(&[0, 1, 3])],
            ),
            &["[1]", "[2, 3]"],
            Some(12),
        ),
        (
            over(
                "vortex.listview",
                list_type(),
                3,
                &[0x08, 3, 0x10, 0, 0x18, 0],
                vec![int32(&[1, 2, 3]), uint8(&[2, 0, 1]), uint8(&[1, 2, 0])],
            ),
            &["[3]", "[1, 2]", "[]"],
            Some(16),
        ),
        (
            over("vortex.fixed_size_list", fixed, 2, &[], vec![int32(&[1, 2, 3, 4])]),
            &["[1, 2]", "[3, 4]"],
            Some(0),
        ),
        // The reference is 1000.
        (
            over("fastlanes.for", DataType::Int32, 2, &[0x18, 0xd0, 0x0f], vec![int32(&[1, -4])]),
            &["1001", "996"],
            Some(9),
        ),
        (
            over(
                "vortex.zigzag",
                DataType::Int32,
                4,
                &[],
                vec![Node::words(DataType::UInt32, &[0u32, 1, 2, 7], u32::to_le_bytes)],
            ),
            &["0", "-1", "1", "-4"],
            Some(17),
        ),
        // The integers are divided by 10^3 and multiplied by 10^1.
        (
            over("vortex.alp", DataType::Float32, 2, &[0x08, 3, 0x10, 1], vec![int32(&[25, -50])]),
            &["0.25", "-0.5"],
            Some(9),
        ),
        (
            over(
                "vortex.runend",
                DataType::Int32,
                5,
                &[0x08, 0, 0x10, 3, 0x18, 1],
                vec![uint8(&[2, 3, 9]), int32(&[4, 5, 6])],
            ),
            &["4", "5", "6", "6", "6"],
            Some(21),
        ),
        (
            Node { buffers: vec![minus_one.clone()], ..Node::new("vortex.constant", DataType::Int32, 3) },
            &["-1", "-1", "-1"],
            Some(13),
        ),
        (
            nullable(Node { buffers: vec![null], ..Node::new("vortex.constant", DataType::Int32, 2) }),
            &["null", "null"],
            Some(9),
        ),
        (Node { buffers: vec![minus_one], ..sparse }, &["-1", "20", "-1", "-1", "50"], Some(21)),
        (null_filled, &["null", "20", "null", "null", "50"], Some(21)),
        // The sequence begins at 5, with a step of -2.
        (
            over("vortex.sequence", DataType::Int32, 3, &[0x0a, 2, 0x18, 10, 0x12, 2, 0x18, 3], vec![]),
            &["5", "3", "1"],
            Some(13),
        ),
        (
            Node {
                metadata: vec![0x08, 1],
                buffers: vec![vec![0x39, 0x30, 0xff, 0xff]],
                ..Node::new("vortex.decimal", DataType::Decimal128(10, 2), 2)
            },
            &["123.45", "-0.01"],
            Some(33),
        ),
        (
            over(
                "vortex.decimal_byte_parts",
                DataType::Decimal128(9, 1),
                2,
                &[0x08, 6],
                vec![int32(&[15, -15])],
            ),
            &["1.5", "-1.5"],
            Some(33),
        ),
        (
            over("vortex.datetimeparts", millis, 2, &[0x08, 6, 0x10, 6, 0x18, 6], times),
            &["1970-01-01T00:00:05.250", "1970-01-02T00:00:00.001"],
            Some(17),
        ),
        (
            Node { buffers: vec![vec![1, 0, 7]], ..Node::new("vortex.bytebool", DataType::Boolean, 3) },
            &["true", "false", "true"],
            Some(2),
        ),
        (
            nullable(over(
                "vortex.masked",
                DataType::Int32,
                5,
                &[],
                vec![int32(&[1, 2, 3, 4, 5]), bits(&[VALID], 5)],
            )),
            &["1", "null", "3", "null", "5"],
            Some(0),
        ),
        (Node::packed(&[1, 7, 3], 3), &["1", "7", "3"], Some(4)),
        (delta(), &["7", "7"], Some(9)),
        (split_floats(), &["1.5", "2.5", "2.5039063", "-1.5"], Some(17)),
        (views(), &["ab", "more than a view "], Some(0)),
        (maps(), &["[{key: 1, value: 2}]", "[{key: 3, value: 4}, {key: 5, value: 6}]"], Some(0)),
        (texts(), &["ten", "", "more than a view "], Some(48)),
    ]
}

#[test]
fn decodes_each_encoding_and_states_its_size() {
    let rig = Rig::new();
    for (node, expected, bytes) in samples() {
        let decoded = rig.decode(&node).unwrap_or_else(|error| panic!("{}: {error}", node.id));
        assert_eq!(decoded, expected, "{}", node.id);
        assert_eq!(rig.size(&node), bytes, "{}", node.id);
    }
    rig.host.assert_nothing_leaked();
}

#[test]
fn rejects_malformed_nodes_of_each_encoding() {
    let rig = Rig::new();
    for (node, ..) in samples() {
        rig.check(&node).unwrap();
        let assert_rejected = |what: &str, node: Node| {
            let error = rig.check(&node).expect_err(&format!("{} with {what}", node.id));
            assert!(error.message().starts_with(node.id), "{error}");
        };
        let mut more = node.clone();
        more.buffers.push(vec![0; 3]);
        assert_rejected("one buffer more", more);
        let mut more = node.clone();
        more.children.extend([int32(&[]), int32(&[])]);
        assert_rejected("two children more", more);
        // The type of a constant is checked when its buffer is decoded.
        if node.id != "vortex.constant" {
            assert_rejected("another type", Node { data_type: DataType::Utf8, ..node.clone() });
        }
        // If a node of an encoding in this list has one value too many, it is valid or is rejected
        // only when it is decoded.
        let any_length = [
            "vortex.constant",
            "vortex.sequence",
            "vortex.null",
            "fastlanes.bitpacked",
            "fastlanes.delta",
            "vortex.runend",
            "vortex.sparse",
        ];
        if !any_length.contains(&node.id) && !node.id.ends_with("bool") {
            assert_rejected("a value more", Node { len: node.len + 1, ..node.clone() });
        }
        if !node.children.is_empty() {
            let mut fewer = node.clone();
            fewer.children.clear();
            if node.children.len() > 1 || node.id != "vortex.primitive" {
                assert_rejected("no children", fewer);
            }
        }
        for i in 0..node.children.len() {
            let mut changed = node.clone();
            changed.children[i].data_type = DataType::Duration(TimeUnit::Second);
            assert_rejected("a child of another type", changed);
        }
    }
}

#[test]
fn only_nullable_nodes_accept_a_validity_child() {
    let rig = Rig::new();
    let with = |nullable, validity: &[Node]| {
        let node = Node { children: validity.to_vec(), nullable, ..int32(&[1, 2, 3]) };
        rig.check(&node).map_err(|error| error.message().to_owned())
    };
    let valid = bits(&[0b101], 3);
    assert_eq!(with(true, &[]), Ok(()));
    assert_eq!(with(true, std::slice::from_ref(&valid)), Ok(()));
    assert_eq!(with(false, &[]), Ok(()));
    let assert_rejected = |nullable, validity: &[Node], expected: &str| {
        let message = with(nullable, validity).unwrap_err();
        assert!(message.ends_with(expected), "{message}");
    };
    assert_rejected(false, std::slice::from_ref(&valid), "the node has 1 children, expected 0");
    assert_rejected(
        true,
        &[valid.clone(), valid.clone()],
        "the node has 2 children, expected 0, or one more for its validity",
    );
    assert_rejected(
        true,
        &[bits(&[0b101], 4)],
        "as validity, the node has 4 values of bool, expected 3 of bool",
    );
    assert_rejected(
        true,
        &[uint8(&[1, 0, 1])],
        "as validity, the node has 3 values of uint8, expected 3 of bool",
    );
    assert_rejected(
        true,
        &[nullable(valid)],
        "as validity, the node has a nullable type, expected a non-nullable one",
    );
}

#[test]
fn importer_and_exporter_list_formats_with_capsule_names_and_magic_bytes() {
    use crossdock_plugin_api::Plugin;
    let rig = Rig::new();
    let formats = rig.plugin.importer().unwrap().formats();
    let [capsules, bytes] = formats else { panic!("{} formats", formats.len()) };
    assert_eq!((capsules.name.as_str(), capsules.bytes), ("encoded-array", false));
    assert_eq!(capsules.capsules, ["crossdock_encoded_array"]);
    assert_eq!((bytes.name.as_str(), bytes.bytes), ("encodings", true));
    assert_eq!(bytes.magics, [(0, b"CDENC\r\n\x1a".to_vec())]);
    assert_eq!((bytes.extensions.as_slice(), bytes.capsules.len()), (&[".cdenc".to_owned()][..], 0));
    let formats = rig.plugin.exporter().unwrap().formats();
    let [capsules] = formats else { panic!("{} formats", formats.len()) };
    assert_eq!((capsules.name.as_str(), capsules.bytes), ("encoded-array", false));
    assert_eq!(capsules.capsules, ["crossdock_encoded_array"]);
}

#[test]
fn timestamp_parts_may_have_any_integer_type() {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let rig = Rig::new();
    let types = [UInt8, UInt16, UInt32, UInt64, Int8, Int16, Int32, Int64];
    // The integer types, in the order of their type numbers.
    for (data_type, number) in types.into_iter().zip(0..) {
        let width = data_type.primitive_width().unwrap();
        let part = |values: [u64; 2]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()[..width].to_vec()).collect();
            Node { buffers: vec![bytes], ..Node::new("vortex.primitive", data_type.clone(), 2) }
        };
        let (days, seconds, subseconds) = (part([0, 1]), part([5, 0]), part([25, 1]));
        let millis = DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, None);
        let metadata = [0x08, number, 0x10, number, 0x18, number];
        let node = over("vortex.datetimeparts", millis, 2, &metadata, vec![days, seconds, subseconds]);
        let expected = ["1970-01-01T00:00:05.025", "1970-01-02T00:00:00.001"];
        assert_eq!(rig.decode(&node).unwrap(), expected, "{data_type}");
    }
}
