//! Encoded arrays as plain data.

use crossdock_plugin_api::{EncodedArray, EncodedNode, Owned, Result, abi};
use serde::{Deserialize, Serialize};

use crate::node::{DeviceParts, NodeRecord};

/// An encoded array, or a subtree of an encoded array. `P` represents a buffer.
#[derive(Serialize, Deserialize)]
pub struct TreeParts<P> {
    /// All nodes in pre-order.
    pub nodes: Vec<NodeRecord>,
    /// The buffers of all nodes, in the order of the nodes.
    pub buffers: Vec<BufferRecord<P>>,
}

/// A buffer of an encoded array.
#[derive(Serialize, Deserialize)]
pub struct BufferRecord<P> {
    /// `None` for a buffer without bytes, and for a buffer whose contents are not carried.
    pub place: Option<P>,
    /// The length of the buffer in bytes.
    pub bytes: u64,
    /// The address of the buffer is a multiple of this alignment (bytes, a power of two).
    pub alignment: u64,
    /// The device of the buffer.
    pub device: DeviceParts,
}

impl<P> TreeParts<P> {
    /// Describes a node and all its descendants. `place` decides what represents a buffer.
    ///
    /// # Errors
    /// The type of a node cannot be serialized; the errors of `place`.
    pub fn write(
        root: EncodedNode<'_>,
        mut place: impl FnMut(&abi::EncodedBuffer) -> Result<Option<P>>,
    ) -> Result<Self> {
        let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
        for index in root.index()..root.end() {
            let node = root.at(index)?;
            nodes.push(NodeRecord::write(node)?);
            for i in 0..node.n_buffers() {
                let buffer = node.buffer(i)?;
                buffers.push(BufferRecord {
                    place: place(&buffer)?,
                    bytes: buffer.bytes,
                    // All fields are zero if the node is already decoded and the buffer was moved
                    // out of it.
                    alignment: buffer.alignment.max(1),
                    device: buffer.device.into(),
                });
            }
        }
        Ok(Self { nodes, buffers })
    }

    /// Returns the encoded array. `buffer` returns the buffer of a record.
    ///
    /// # Errors
    /// The nodes form no tree, a type is malformed, or an address is not a multiple of its buffer's
    /// alignment; the errors of `buffer`.
    pub fn read(
        self,
        buffer: impl FnMut(BufferRecord<P>) -> Result<Owned<abi::EncodedBuffer>>,
    ) -> Result<EncodedArray> {
        let nodes = self.nodes.into_iter().map(NodeRecord::read).collect::<Result<_>>()?;
        let buffers = self.buffers.into_iter().map(buffer).collect::<Result<_>>()?;
        EncodedArray::new(nodes, buffers)
    }
}
