//! Builds encoded arrays from trees of nodes.

use arrow_schema::{DataType, Field};
use crossdock::Session;
use crossdock_arrays::export_field;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, EncodedArray, LogicalType, NodeParts};

/// A node of a tree, with its children.
pub struct Node {
    /// The id of the encoding.
    pub id: &'static str,
    /// The type of the values.
    pub data_type: DataType,
    /// Whether the type is nullable.
    pub nullable: bool,
    /// The number of values.
    pub len: u64,
    /// The metadata, in the format of the encoding.
    pub metadata: Vec<u8>,
    /// The contents of the buffers.
    pub buffers: Vec<Vec<u8>>,
    /// The children, in the order of the encoding.
    pub children: Vec<Node>,
}

impl Node {
    /// A node without metadata, buffers and children.
    pub fn new(id: &'static str, data_type: DataType, len: u64) -> Self {
        let (metadata, buffers, children) = Default::default();
        Self { id, data_type, nullable: false, len, metadata, buffers, children }
    }

    /// A node of `example.xor`, which `examples/rust-plugin` decodes. Each value is the exclusive
    /// or of a word and a reference word.
    pub fn xor(data_type: DataType, reference: &[u8], words: Node) -> Self {
        let (len, nullable, metadata) = (words.len, words.nullable, reference.to_vec());
        Self { metadata, nullable, children: vec![words], ..Self::new("example.xor", data_type, len) }
    }

    /// A node of `example.scaled`, which `examples/c-plugin` decodes. Each value is an integer
    /// multiplied by `scale`.
    pub fn scaled(data_type: DataType, scale: &[u8], integers: Node) -> Self {
        let (len, nullable, metadata) = (integers.len, integers.nullable, scale.to_vec());
        Self { metadata, nullable, children: vec![integers], ..Self::new("example.scaled", data_type, len) }
    }

    /// A node of `vortex.primitive`, with uncompressed numbers.
    pub fn words<T: Copy, const N: usize>(data_type: DataType, words: &[T], bytes: fn(T) -> [u8; N]) -> Self {
        let values = words.iter().flat_map(|word| bytes(*word)).collect();
        Self { buffers: vec![values], ..Self::new("vortex.primitive", data_type, words.len() as u64) }
    }

    /// Adds a validity child. A value is null if its bit in `valid` is 0.
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

    /// The tree as the bytes of a file.
    pub fn to_bytes(&self, session: &Session) -> Vec<u8> {
        session.encoded_to_bytes(self.tree(session, Device::CPU)).unwrap()
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

/// Copies bytes to a buffer on a device.
pub fn buffer(session: &Session, device: Device, bytes: &[u8]) -> Buffer {
    let stream = session.memory().default_stream(device).unwrap();
    let copy = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    session.memory().alloc_with(&stream, bytes.len(), copy).unwrap().freeze(&stream).unwrap()
}
