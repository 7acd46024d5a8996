//! Builds trees of nodes and decodes them as a session does: checks each node, queries its plan,
//! and decodes it after the nodes of the plan.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{DeviceBatch, cells, export_field, import_batch};
use crossdock_encodings::Encodings;
use crossdock_memory::Device;
use crossdock_plugin_api::{
    CallSettings, DecodePlan, EncodedArray, Encoding, LogicalType, NodeParts, Operator, Owned, Plugin,
    Result, abi,
};
use crossdock_test_support::TestHost;

/// A node of a tree, with its children.
#[derive(Clone)]
pub struct Node {
    pub id: &'static str,
    pub data_type: DataType,
    pub nullable: bool,
    pub len: u64,
    /// The metadata of the encoding.
    pub metadata: Vec<u8>,
    pub buffers: Vec<Vec<u8>>,
    pub children: Vec<Node>,
}

impl Node {
    /// A node without metadata, buffers and children.
    pub fn new(id: &'static str, data_type: DataType, len: usize) -> Self {
        let (metadata, buffers, children) = Default::default();
        Self { id, data_type, nullable: false, len: len as u64, metadata, buffers, children }
    }

    /// A node of plain numbers.
    pub fn words<T: Copy, const N: usize>(data_type: DataType, words: &[T], bytes: fn(T) -> [u8; N]) -> Self {
        let values = words.iter().flat_map(|word| bytes(*word)).collect();
        Self { buffers: vec![values], ..Self::new("vortex.primitive", data_type, words.len()) }
    }

    /// Makes the node nullable, with the validity bitmap `valid`.
    pub fn with_validity(mut self, valid: Vec<u8>) -> Self {
        let bits =
            Node { buffers: vec![valid], ..Node::new("vortex.bool", DataType::Boolean, self.len as usize) };
        self.nullable = true;
        self.children.push(bits);
        self
    }

    /// A bit-packed node of one-byte integers. The last block may have fewer than 1024 values.
    pub fn packed(values: &[u8], bits: usize) -> Self {
        // A block has 8 rows of 128 lanes. Each lane contains the bits of its values, from the
        // lowest bit on.
        let mut bytes = vec![0u8; values.len().div_ceil(1024) * 128 * bits];
        for (i, value) in values.iter().enumerate() {
            let (block, at) = (i / 1024, i % 1024);
            let (row, lane) = (at / 128, at % 128);
            for bit in 0..bits {
                let position = row * bits + bit;
                let byte = &mut bytes[block * 128 * bits + position / 8 * 128 + lane];
                *byte |= (value >> bit & 1) << (position % 8);
            }
        }
        let metadata = vec![0x08, bits as u8];
        Self {
            metadata,
            buffers: vec![bytes],
            ..Self::new("fastlanes.bitpacked", DataType::UInt8, values.len())
        }
    }

    fn field(&self) -> Field {
        Field::new("", self.data_type.clone(), self.nullable)
    }

    fn flatten(&self, parts: &mut Vec<NodeParts>, buffers: &mut Vec<Vec<u8>>) {
        parts.push(NodeParts {
            encoding: self.id.into(),
            logical_type: LogicalType::Schema(export_field(&self.field()).unwrap()),
            length: self.len,
            metadata: self.metadata.clone(),
            n_buffers: self.buffers.len() as u32,
            n_children: self.children.len() as u32,
        });
        buffers.extend(self.buffers.iter().cloned());
        self.children.iter().for_each(|child| child.flatten(parts, buffers));
    }
}

/// The plugin and its host.
pub struct Rig {
    pub host: TestHost,
    pub plugin: Encodings,
}

impl Rig {
    pub fn new() -> Self {
        let host = TestHost::new();
        let plugin = Encodings::create(host.host()).unwrap();
        Self { host, plugin }
    }

    fn encoding(&self) -> &dyn Encoding {
        self.plugin.encoding().unwrap()
    }

    /// The encoded array of a tree, with buffers in host memory.
    pub fn tree(&self, root: &Node) -> EncodedArray {
        let (mut parts, mut buffers) = (Vec::new(), Vec::new());
        root.flatten(&mut parts, &mut buffers);
        let (memory, stream) = (self.host.memory(), self.host.stream(Device::CPU));
        let buffer = |bytes: &Vec<u8>| {
            let copy = |to: &mut [u8]| {
                to.copy_from_slice(bytes);
                Ok(())
            };
            let copied = memory.alloc_with(&stream, bytes.len(), copy).unwrap();
            copied.freeze(&stream).unwrap().to_encoded()
        };
        EncodedArray::new(parts, buffers.iter().map(buffer).collect()).unwrap()
    }

    /// Checks the root.
    pub fn check(&self, root: &Node) -> Result<()> {
        let array = self.tree(root);
        let node = array.root()?;
        self.encoding().check(node)
    }

    /// The size that the plugin states for the decoded root.
    pub fn size(&self, root: &Node) -> Option<u64> {
        let array = self.tree(root);
        self.encoding().size(array.root().unwrap(), 0..root.len).unwrap()
    }

    /// The plan for decoding the root on a device.
    pub fn plan(&self, root: &Node, wanted: Device) -> DecodePlan {
        let array = self.tree(root);
        self.encoding().plan(array.root().unwrap(), wanted, 0..root.len).unwrap()
    }

    /// Returns the root's program, if it has one.
    pub fn lower(&self, root: &Node) -> Option<Vec<Operator>> {
        let array = self.tree(root);
        self.encoding().lower(array.root().unwrap()).unwrap()
    }

    /// Decodes the root to text.
    pub fn decode(&self, root: &Node) -> Result<Vec<String>> {
        let batch = self.decode_batch(root)?;
        let mut columns = cells(&batch, batch.len(), &self.host.stream(Device::CPU))?;
        Ok(columns.remove(0))
    }

    /// Decodes the root to a batch with one column.
    pub fn decode_batch(&self, root: &Node) -> Result<DeviceBatch> {
        let array = self.tree(root);
        let batch = self.decode_node(&array, 0)?;
        let schema = Arc::new(Schema::new(vec![root.field()]));
        let batch = import_batch(batch, &schema, &self.host.memory())?;
        assert_eq!(batch.len() as u64, root.len);
        Ok(batch)
    }

    fn decode_node(&self, array: &EncodedArray, index: usize) -> Result<Owned<abi::Batch>> {
        let node = array.node(index)?;
        self.encoding().check(node)?;
        let rows = 0..node.length();
        let plan = self.encoding().plan(node, Device::CPU, rows.clone())?;
        let below = (index + 1..).zip(plan.decoded);
        let below = below.map(|(at, wanted)| wanted.then(|| self.decode_node(array, at)).transpose());
        let below = below.collect::<Result<_>>()?;
        CallSettings::new(Device::CPU).enter(|call| self.encoding().decode(call, node, rows, below))
    }
}
