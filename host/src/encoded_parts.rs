//! Builds encoded arrays from their parts, for encodings that no plugin writes.

use arrow_schema::Field;
use crossdock_arrays::export_field;
use crossdock_plugin_api::{
    ByteSource, Device, EncodedArray, EncodedBuffers, EncodedNode, Error as ApiError, LogicalType, NodeParts,
    Result as ApiResult,
};

use crate::encoded::into_parts;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::source::Input;

/// A node with its buffers and children.
pub struct EncodedParts {
    /// The encoding's id.
    pub encoding: String,
    /// The type of the node's values; the name of the field is ignored.
    pub field: Field,
    /// The number of the node's values.
    pub length: u64,
    /// The encoding's metadata.
    pub metadata: Vec<u8>,
    /// The node's own buffers, in order.
    pub buffers: Vec<Input>,
    /// The child arrays, in order.
    pub children: Vec<EncodedArray>,
}

impl Session {
    /// Builds an encoded array from these parts. Bytes are copied to host memory; the plugin that
    /// decodes the array validates them.
    ///
    /// # Errors
    /// [`Error::Data`] if the parts do not form a tree or bytes cannot be read. For children, the
    /// errors of [`Session::encoded_type`].
    pub fn build_encoded(&self, parts: EncodedParts) -> Result<EncodedArray> {
        let what = format!("cannot build an encoded array of '{}'", parts.encoding);
        let failed = |error| Error::data(what.clone(), error);
        let (mut nodes, mut buffers) = (Vec::new(), EncodedBuffers::new());
        nodes.push(NodeParts {
            logical_type: LogicalType::Schema(export_field(&parts.field.with_name("")).map_err(failed)?),
            length: parts.length,
            metadata: parts.metadata,
            n_buffers: count(parts.buffers.len(), "buffers").map_err(failed)?,
            n_children: count(parts.children.len(), "children").map_err(failed)?,
            encoding: parts.encoding,
        });
        let stream = self.memory().default_stream(Device::CPU).map_err(failed)?;
        for input in &parts.buffers {
            let in_buffer = |error: ApiError| failed(error.context(format!("buffer '{}'", input.name())));
            let source = input.shared();
            let bytes = length(&*source).map_err(in_buffer)?;
            let fill = |to: &mut [u8]| read_exactly(&*source, to);
            let buffer = self.memory().alloc_with(&stream, bytes, fill).map_err(in_buffer)?;
            buffers.push(buffer.freeze_now().to_encoded());
        }
        for child in parts.children {
            // All nodes get Arrow types, because every plugin can read Arrow types.
            let arrow_type = |node: EncodedNode<'_>| {
                export_field(&self.encoded_type(node)?).map(LogicalType::Schema).map_err(&failed)
            };
            let (child_nodes, child_buffers) = into_parts(child, arrow_type)?;
            nodes.extend(child_nodes);
            buffers.extend(child_buffers);
        }
        EncodedArray::new(nodes, buffers).map_err(failed)
    }
}

fn count(n: usize, what: &str) -> ApiResult<u32> {
    u32::try_from(n)
        .map_err(|_| ApiError::invalid_argument(format!("{n} {what}, expected at most {}", u32::MAX)))
}

fn length(source: &dyn ByteSource) -> ApiResult<usize> {
    let bytes = source.len().ok_or_else(|| {
        ApiError::invalid_argument("the length is unknown: expected a file or bytes in memory, not a pipe")
    })?;
    usize::try_from(bytes).map_err(|_| ApiError::out_of_memory(format!("cannot allocate {bytes} bytes")))
}

fn read_exactly(source: &dyn ByteSource, to: &mut [u8]) -> ApiResult<()> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match source.read_at(done as u64, rest)? {
            0 => {
                return Err(ApiError::io(format!(
                    "the source ended after {done} bytes, expected {}",
                    to.len()
                )));
            }
            n => done += n,
        }
    }
    Ok(())
}
