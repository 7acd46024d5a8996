//! Nodes of encoded arrays, and the types of their children, as plain data.

use crossdock_plugin_api::encoded::blob::schema;
use crossdock_plugin_api::{ChildType, Device, EncodedNode, LogicalType, NodeParts, Result};
use serde::{Deserialize, Serialize};

use crate::schema::write_schema;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceParts {
    r#type: i32,
    id: i64,
}

impl From<Device> for DeviceParts {
    fn from(device: Device) -> Self {
        Self { r#type: device.r#type, id: device.id }
    }
}

impl From<DeviceParts> for Device {
    fn from(device: DeviceParts) -> Self {
        Self::from_arrow(device.r#type, device.id)
    }
}

/// A node without its children and the contents of its buffers.
#[derive(Serialize, Deserialize)]
pub struct NodeRecord {
    encoding: String,
    schema: Option<Vec<u8>>,
    dtype: Vec<u8>,
    length: u64,
    metadata: Vec<u8>,
    n_buffers: u32,
    n_children: u32,
}

/// A node without its children and buffers.
#[derive(Serialize, Deserialize)]
pub struct NodeHead(NodeRecord);

impl NodeHead {
    /// # Errors
    /// The type of the node cannot be serialized.
    pub fn write(node: EncodedNode<'_>) -> Result<Self> {
        NodeRecord::write(node).map(|record| Self(NodeRecord { n_buffers: 0, ..record }))
    }

    /// # Errors
    /// The type is malformed.
    pub fn read(self) -> Result<NodeParts> {
        self.0.read()
    }
}

/// The type and the length of a node's child.
#[derive(Serialize, Deserialize)]
pub struct ChildParts {
    schema: Vec<u8>,
    length: Option<u64>,
}

impl ChildParts {
    /// # Errors
    /// A type cannot be serialized.
    pub fn write_all(children: &[ChildType]) -> Result<Vec<Self>> {
        let write =
            |child: &ChildType| Ok(Self { schema: write_schema(&child.schema)?, length: child.length });
        children.iter().map(write).collect()
    }

    /// # Errors
    /// A type is malformed.
    pub fn read_all(parts: Vec<Self>) -> Result<Vec<ChildType>> {
        let read = |part: Self| Ok(ChildType { schema: schema::read(&part.schema)?, length: part.length });
        parts.into_iter().map(read).collect()
    }
}

impl NodeRecord {
    /// # Errors
    /// The type of the node cannot be serialized.
    pub fn write(node: EncodedNode<'_>) -> Result<Self> {
        Ok(Self {
            encoding: node.encoding().to_owned(),
            schema: if node.dtype().is_some() { None } else { Some(write_schema(node.schema()?)?) },
            dtype: node.dtype().unwrap_or_default().to_vec(),
            length: node.length(),
            metadata: node.metadata().to_vec(),
            n_buffers: node.n_buffers() as u32,
            n_children: node.n_children() as u32,
        })
    }

    /// # Errors
    /// The type is malformed.
    pub fn read(self) -> Result<NodeParts> {
        let logical_type = match self.schema {
            Some(bytes) => LogicalType::Schema(schema::read(&bytes)?),
            None => LogicalType::Dtype(self.dtype),
        };
        Ok(NodeParts {
            encoding: self.encoding,
            logical_type,
            length: self.length,
            metadata: self.metadata,
            n_buffers: self.n_buffers,
            n_children: self.n_children,
        })
    }
}
