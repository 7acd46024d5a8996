//! An encoded array for those who need any.

use arrow_schema::{DataType, Field, Fields};
use crossdock::{Host, Session};
use crossdock_arrays::export_field;
use crossdock_plugin_api::{EncodedArray, LogicalType, NodeParts, Owned, abi};

use crate::built_file;

const ROWS: u64 = 3000;
const BLOCKS: usize = 3;

/// The bytes of a tree of the plugin `encodings`: a struct of packed integers above a reference, patched and some of them null, of
/// texts by codes, and of runs.
pub fn sample_tree() -> Vec<u8> {
    tree(sample)
}

/// The bytes of a tree of `example.xor`, whose two references no program has, above numbers that the plugin `encodings` decodes.
pub fn xor_tree() -> Vec<u8> {
    tree(|made| {
        made.node("example.xor", DataType::UInt32, ROWS, &[7, 0, 0, 0, 9, 0, 0, 0], 1);
        let numbers: Vec<_> = (0..ROWS as u32).map(u32::to_le_bytes).collect();
        made.words("vortex.primitive", DataType::UInt32, &numbers);
    })
}

/// The bytes of what is made.
fn tree(make: impl FnOnce(&mut Made<'_>)) -> Vec<u8> {
    let host = Host::builder().plugins(built_file("libcrossdock_encodings_plugin.so")).build().unwrap();
    let session = host.session().open().unwrap();
    let mut made = Made { session: &session, nodes: Vec::new(), buffers: Vec::new() };
    make(&mut made);
    let Made { nodes, buffers, .. } = made;
    session.encoded_to_bytes(EncodedArray::new(nodes, buffers).unwrap()).unwrap()
}

fn sample(made: &mut Made<'_>) {
    let fields = [
        Field::new("packed", DataType::Int32, true),
        Field::new("text", DataType::Utf8View, false),
        Field::new("runs", DataType::Int64, false),
    ];
    let all = DataType::Struct(Fields::from(fields.to_vec()));
    made.node("vortex.struct", all, ROWS, &[], 3);
    // A reference of 1000: a protobuf's field 3, zigzag.
    made.node("fastlanes.for", DataType::Int32, ROWS, &[0x18, 0xd0, 0x0f], 1).is_nullable();
    // 7 bits, and patches: three of them, at numbers of 4 bytes.
    made.node("fastlanes.bitpacked", DataType::Int32, ROWS, &[0x08, 7, 0x1a, 4, 0x08, 3, 0x18, 2], 3)
        .is_nullable();
    made.buffer((0..BLOCKS * 128 * 7).map(|i| (i * 37 + 11) as u8).collect());
    made.words("vortex.primitive", DataType::UInt32, &[5u32, 1030, 2999].map(u32::to_le_bytes));
    made.words("vortex.primitive", DataType::Int32, &[-7i32, 0, 1 << 20].map(i32::to_le_bytes)).is_nullable();
    made.node("vortex.bool", DataType::Boolean, ROWS, &[], 0);
    made.buffer(vec![0xb7; ROWS.div_ceil(8) as usize]);
    // Codes of one byte, of three texts.
    made.node("vortex.dict", DataType::Utf8View, ROWS, &[0x08, 3, 0x10, 0], 2);
    made.node("vortex.primitive", DataType::UInt8, ROWS, &[], 0);
    made.buffer((0..ROWS).map(|i| (i * 7 % 3) as u8).collect());
    made.node("vortex.varbin", DataType::Utf8View, 3, &[0x08, 6], 1);
    made.buffer(b"onetwo and more than a view holds".to_vec());
    made.words("vortex.primitive", DataType::Int32, &[0i32, 3, 6, 33].map(i32::to_le_bytes));
    // Ends of 4 bytes, three of them.
    made.node("vortex.runend", DataType::Int64, ROWS, &[0x08, 2, 0x10, 3], 2);
    made.words("vortex.primitive", DataType::UInt32, &[1u32, 1500, ROWS as u32].map(u32::to_le_bytes));
    made.words("vortex.primitive", DataType::Int64, &[1i64, -1, i64::MAX].map(i64::to_le_bytes));
}

struct Made<'a> {
    session: &'a Session,
    nodes: Vec<NodeParts>,
    buffers: Vec<Owned<abi::EncodedBuffer>>,
}

impl Made<'_> {
    fn node(&mut self, id: &str, of: DataType, length: u64, metadata: &[u8], n_children: u32) -> &mut Self {
        let logical_type = LogicalType::Schema(export_field(&Field::new("", of, false)).unwrap());
        let (encoding, metadata) = (id.into(), metadata.into());
        self.nodes.push(NodeParts { encoding, logical_type, length, metadata, n_buffers: 0, n_children });
        self
    }

    /// The last node's.
    fn buffer(&mut self, bytes: Vec<u8>) {
        let copy = |to: &mut [u8]| {
            to.copy_from_slice(&bytes);
            Ok(())
        };
        let buffer = self.session.memory().alloc_with(self.session.stream(), bytes.len(), copy).unwrap();
        self.buffers.push(buffer.freeze(self.session.stream()).unwrap().to_encoded());
        self.nodes.last_mut().unwrap().n_buffers += 1;
    }

    fn words<const N: usize>(&mut self, id: &str, of: DataType, words: &[[u8; N]]) -> &mut Self {
        self.node(id, of, words.len() as u64, &[], 0);
        self.buffer(words.concat());
        self
    }

    fn is_nullable(&mut self) {
        let node = self.nodes.last_mut().unwrap();
        let LogicalType::Schema(schema) = &node.logical_type else { panic!("a schema") };
        let field = crossdock_arrays::import_field(schema).unwrap().with_nullable(true);
        node.logical_type = LogicalType::Schema(export_field(&field).unwrap());
    }
}
