//! Encoded arrays from their parts: samples of encodings for which nobody has a writer yet.

use arrow_schema::Field;
use crossdock_arrays::export_field;
use crossdock_plugin_api::{
    ByteSource, Device, EncodedArray, EncodedBuffers, EncodedNode, Error as ApiError, LogicalType, NodeParts,
    Result as ApiResult,
};

use crate::encoded::taken_apart;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::source::Input;

/// One node, and what is below it.
pub struct EncodedParts {
    /// The encoding's id.
    pub encoding: String,
    /// What its values are; the name does not count.
    pub field: Field,
    /// How many there are.
    pub length: u64,
    /// What the encoding says about them.
    pub metadata: Vec<u8>,
    /// Its own buffers, in order.
    pub buffers: Vec<Input>,
    /// In order.
    pub children: Vec<EncodedArray>,
}

impl Session {
    /// The tree of these parts. Bytes are copied to host memory; whether they fit the encoding is for the plugin that decodes them.
    ///
    /// # Errors
    /// [`Error::Data`] for what is no tree and bytes that cannot be read; as [`Session::encoded_type`] for children.
    pub fn build_encoded(&self, parts: EncodedParts) -> Result<EncodedArray> {
        let what = format!("cannot make an encoded array of '{}'", parts.encoding);
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
            // All types are as Arrow writes them, so that whoever knows no others can decode the tree.
            let arrow_type = |node: EncodedNode<'_>| {
                export_field(&self.encoded_type(node)?).map(LogicalType::Schema).map_err(&failed)
            };
            let (below, their_buffers) = taken_apart(child, arrow_type)?;
            nodes.extend(below);
            buffers.extend(their_buffers);
        }
        EncodedArray::new(nodes, buffers).map_err(failed)
    }
}

fn count(n: usize, what: &str) -> ApiResult<u32> {
    u32::try_from(n).map_err(|_| ApiError::invalid_argument(format!("{n} {what} are more than a node has")))
}

fn length(source: &dyn ByteSource) -> ApiResult<usize> {
    let bytes =
        source.len().ok_or_else(|| ApiError::invalid_argument("its length is not known: is it a pipe?"))?;
    usize::try_from(bytes).map_err(|_| ApiError::out_of_memory(format!("{bytes} bytes")))
}

fn read_exactly(source: &dyn ByteSource, to: &mut [u8]) -> ApiResult<()> {
    let mut done = 0;
    while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match source.read_at(done as u64, rest)? {
            0 => return Err(ApiError::io(format!("it ended after {done} bytes"))),
            n => done += n,
        }
    }
    Ok(())
}
