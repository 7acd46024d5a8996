//! Sample encoded arrays as the bytes of files. No plugin is needed to create them, because their
//! types are Arrow types.

use arrow_schema::{DataType, Field, Fields};
use crossdock::discovery::Search;
use crossdock::{Host, Session};

use crate::tree::Node;

const ROWS: u64 = 3000;
const BLOCKS: usize = 3;

fn session() -> Session {
    Host::builder().search(Search::nowhere()).build().unwrap().session().open().unwrap()
}

/// A tree for the plugin `encodings`. It is a struct of three columns: bit-packed integers with a
/// reference, patches and nulls; dictionary-encoded texts; and run-end encoded integers.
pub fn sample_tree() -> Vec<u8> {
    let fields = [
        Field::new("packed", DataType::Int32, true),
        Field::new("text", DataType::Utf8View, false),
        Field::new("runs", DataType::Int64, false),
    ];
    let all = DataType::Struct(Fields::from(fields.to_vec()));
    let children = vec![packed(), texts(), runs()];
    Node { children, ..Node::new("vortex.struct", all, ROWS) }.to_bytes(&session())
}

fn packed() -> Node {
    let patches =
        Node { nullable: true, ..Node::words(DataType::Int32, &[-7i32, 0, 1 << 20], i32::to_le_bytes) };
    let bit_packed = Node {
        // The metadata: values of 7 bits, and three patches with 4-byte indices.
        metadata: vec![0x08, 7, 0x1a, 4, 0x08, 3, 0x18, 2],
        buffers: vec![(0..BLOCKS * 128 * 7).map(|i| (i * 37 + 11) as u8).collect()],
        children: vec![Node::words(DataType::UInt32, &[5u32, 1030, 2999], u32::to_le_bytes), patches],
        ..Node::new("fastlanes.bitpacked", DataType::Int32, ROWS)
    };
    Node {
        nullable: true,
        // The reference 1000 as field 3 of a protobuf message, zigzag-encoded.
        metadata: vec![0x18, 0xd0, 0x0f],
        children: vec![bit_packed.with_validity(vec![0xb7; ROWS.div_ceil(8) as usize])],
        ..Node::new("fastlanes.for", DataType::Int32, ROWS)
    }
}

fn texts() -> Node {
    let codes: Vec<u8> = (0..ROWS).map(|i| (i * 7 % 3) as u8).collect();
    let values = Node {
        metadata: vec![0x08, 6],
        buffers: vec![b"onetwo and more than a view holds".to_vec()],
        children: vec![Node::words(DataType::Int32, &[0i32, 3, 6, 33], i32::to_le_bytes)],
        ..Node::new("vortex.varbin", DataType::Utf8View, 3)
    };
    Node {
        // The metadata: 1-byte codes for three texts.
        metadata: vec![0x08, 3, 0x10, 0],
        children: vec![Node::words(DataType::UInt8, &codes, |code| [code]), values],
        ..Node::new("vortex.dict", DataType::Utf8View, ROWS)
    }
}

fn runs() -> Node {
    Node {
        // The metadata: three run ends of 4 bytes each.
        metadata: vec![0x08, 2, 0x10, 3],
        children: vec![
            Node::words(DataType::UInt32, &[1u32, 1500, ROWS as u32], u32::to_le_bytes),
            Node::words(DataType::Int64, &[1i64, -1, i64::MAX], i64::to_le_bytes),
        ],
        ..Node::new("vortex.runend", DataType::Int64, ROWS)
    }
}

/// A tree for the C example: floats with nulls, stored as integers of the same width.
pub fn scaled_tree() -> Vec<u8> {
    let integers: Vec<i32> = (0..ROWS as i32).map(|i| i * 7919 - 1_000_000).collect();
    let integers = Node::words(DataType::Int32, &integers, i32::to_le_bytes).with_validity(vec![
        0xb7;
        ROWS.div_ceil(8)
            as usize
    ]);
    Node::scaled(DataType::Float32, &0.25f32.to_le_bytes(), integers).to_bytes(&session())
}

/// A tree for the Rust example, with two nodes that compute the exclusive or of values and
/// reference words. The child has one reference word and is decoded by a program. The parent has
/// two reference words and is decoded by a kernel.
pub fn xor_tree() -> Vec<u8> {
    let words: Vec<u32> = (0..ROWS as u32).map(|i| i.wrapping_mul(0x9e37_79b1)).collect();
    let words =
        Node::words(DataType::UInt32, &words, u32::to_le_bytes)
            .with_validity(vec![0xb7; ROWS.div_ceil(8) as usize]);
    let below = Node::xor(DataType::UInt32, &0x1234_5678u32.to_le_bytes(), words);
    let two: Vec<u8> = [3u32, 5 << 20].iter().flat_map(|word| word.to_le_bytes()).collect();
    Node::xor(DataType::Int32, &two, below).to_bytes(&session())
}
