//! Trees with nodes of `example.xor`, and sessions that know them.

use std::path::Path;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};
use crossdock::memory::Backend;
use crossdock::{Host, Session, Table};
use crossdock_arrays::export_field;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, EncodedArray, LogicalType, NodeParts};
use crossdock_tests::built;

/// A host with the plugins of ours, and one more.
pub fn host(plugin: &Path) -> Host {
    let backend = Backend::builder().untouchable(true).build();
    Host::builder().backend(backend).plugins(built()).plugins(plugin).build().unwrap()
}

pub fn session(plugin: &Path, device: Device) -> Session {
    host(plugin).session().device(device).open().unwrap()
}

/// A node of a tree, with those below it.
pub struct Node {
    pub id: &'static str,
    pub data_type: DataType,
    pub nullable: bool,
    pub len: u64,
    pub metadata: Vec<u8>,
    pub buffers: Vec<Vec<u8>>,
    pub children: Vec<Node>,
}

impl Node {
    pub fn new(id: &'static str, data_type: DataType, len: u64) -> Self {
        let (metadata, buffers, children) = Default::default();
        Self { id, data_type, nullable: false, len, metadata, buffers, children }
    }

    /// Of the plugin's encoding.
    pub fn xor(data_type: DataType, reference: &[u8], words: Node) -> Self {
        let (len, nullable, metadata) = (words.len, words.nullable, reference.to_vec());
        Self { metadata, nullable, children: vec![words], ..Self::new("example.xor", data_type, len) }
    }

    /// Unsigned integers as they are.
    pub fn words<T: Copy, const N: usize>(data_type: DataType, words: &[T], bytes: fn(T) -> [u8; N]) -> Self {
        let values = words.iter().flat_map(|word| bytes(*word)).collect();
        Self { buffers: vec![values], ..Self::new("vortex.primitive", data_type, words.len() as u64) }
    }

    /// With nulls, where `valid` has no bit.
    pub fn with_validity(mut self, valid: Vec<u8>) -> Self {
        let bits = Node { buffers: vec![valid], ..Node::new("vortex.bool", DataType::Boolean, self.len) };
        self.nullable = true;
        self.children.push(bits);
        self
    }

    /// The tree, with its buffers on a device.
    pub fn tree(&self, session: &Session, device: Device) -> EncodedArray {
        let (mut parts, mut buffers) = (Vec::new(), Vec::new());
        self.flatten(&mut parts, &mut buffers);
        let buffers = buffers.iter().map(|bytes| buffer(session, device, bytes).to_encoded()).collect();
        EncodedArray::new(parts, buffers).unwrap()
    }

    fn flatten(&self, parts: &mut Vec<NodeParts>, buffers: &mut Vec<Vec<u8>>) {
        let field = Field::new("", self.data_type.clone(), self.nullable);
        parts.push(NodeParts {
            encoding: self.id.into(),
            logical_type: LogicalType::Schema(export_field(&field).unwrap()),
            length: self.len,
            metadata: self.metadata.clone(),
            n_buffers: self.buffers.len() as u32,
            n_children: self.children.len() as u32,
        });
        buffers.extend(self.buffers.iter().cloned());
        self.children.iter().for_each(|child| child.flatten(parts, buffers));
    }
}

/// Bytes on a device.
pub fn buffer(session: &Session, device: Device, bytes: &[u8]) -> Buffer {
    let stream = session.memory().default_stream(device).unwrap();
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    session.memory().alloc_with(&stream, bytes.len(), copy).unwrap().freeze(&stream).unwrap()
}

/// What a tree holds.
pub fn decoded(session: &Session, tree: EncodedArray) -> ArrayRef {
    let batch = session.decode(tree).unwrap();
    let schema = batch.schema().clone();
    let table = Table::from_batches(session, schema, vec![batch]).unwrap();
    table.to_record_batches().unwrap()[0].column(0).clone()
}

/// Integers of 32 bits, `WIDTH` of them stored.
pub fn bit_packed<const WIDTH: usize>(values: &[u32]) -> Node {
    packed(DataType::UInt32, WIDTH, values)
}

/// Integers without a sign, `bits` of each stored, as `fastlanes.bitpacked` lays them out.
pub fn packed(data_type: DataType, bits: usize, values: &[u32]) -> Node {
    const ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let width = data_type.primitive_width().unwrap();
    let (lanes, word_bits) = (128 / width, 8 * width);
    let mut bytes = Vec::new();
    for block in values.chunks(1024) {
        let mut rows = vec![0u8; 128 * bits];
        for (row, lane) in (0..word_bits).flat_map(|row| (0..lanes).map(move |lane| (row, lane))) {
            let value = block.get(ORDER[row / 8] * 16 + row % 8 * 128 + lane).copied().unwrap_or(0);
            for bit in (0..bits).filter(|bit| value >> bit & 1 != 0) {
                let at = row * bits + bit;
                rows[(at / word_bits * lanes + lane) * width + at % word_bits / 8] |= 1 << (at % 8);
            }
        }
        bytes.extend(rows);
    }
    // The width is a protobuf's field 1.
    let metadata = if bits == 0 { vec![] } else { vec![0x08, bits as u8] };
    Node {
        metadata,
        buffers: vec![bytes],
        ..Node::new("fastlanes.bitpacked", data_type, values.len() as u64)
    }
}
