//! Reads, writes and describes encoded arrays without decoding them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, export_field, import_field_ref};
use crossdock_memory::{read_encoded, write_encoded};
use crossdock_plugin_api::{
    Capsule, EncodedArray, EncodedBuffers, EncodedNode, Error as ApiError, LogicalType, NodeParts, Options,
    Result as ApiResult, Source, abi,
};

use crate::error::{Error, Result};
use crate::registry::Way;
use crate::session::Session;
use crate::source::Input;
use crate::whole_ranges;

/// The format of encoded arrays in capsules. The plugin of this format reads and writes Vortex
/// types.
const FORMAT: &str = "encoded-array";

impl Session {
    /// Reads an encoded array from its bytes. Its buffers are in host memory.
    ///
    /// # Errors
    /// [`Error::Data`] if the bytes are not exactly one encoded array.
    pub fn read_encoded(&self, input: &Input) -> Result<EncodedArray> {
        let source = Source::new(whole_ranges::source(input.shared()));
        let check_cancelled = |_, _| {
            if self.cancel_flag().is_cancelled() { Err(ApiError::cancelled("cancelled")) } else { Ok(()) }
        };
        read_encoded(self.memory(), &source, self.device(), check_cancelled)
            .map_err(|error| Error::data(format!("cannot read '{}'", input.name()), error))
    }

    /// Writes an encoded array as bytes that [`Session::read_encoded`] and the format `encodings`
    /// read. If the array was read from bytes, the result equals these bytes.
    ///
    /// # Errors
    /// [`Error::Data`] if buffers of the array were taken, or cannot be copied to the host.
    pub fn encoded_to_bytes(&self, array: EncodedArray) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let write = |piece: &[u8]| -> ApiResult<()> {
            let no_room = |_| ApiError::out_of_memory(format!("cannot allocate {} bytes", piece.len()));
            bytes.try_reserve(piece.len()).map_err(no_room)?;
            bytes.extend_from_slice(piece);
            Ok(())
        };
        write_encoded(self.memory(), array, write)
            .map_err(|error| Error::data("cannot write an encoded array", error))?;
        Ok(bytes)
    }

    /// Wraps columns in an uncompressed encoded array with Vortex types, without copying values. A
    /// single column without a name becomes the array. Several columns, or a column with a name,
    /// become the fields of a struct.
    ///
    /// # Errors
    /// [`Error::Usage`] if no plugin of the session writes Vortex types, [`Error::Plugin`] for
    /// types that Vortex does not support.
    pub fn encode_uncompressed(&self, schema: &SchemaRef, batches: &[DeviceBatch]) -> Result<EncodedArray> {
        let mut writer = self.capsule_format(FORMAT, Way::Out)?.write(schema, &Options::new())?;
        for batch in batches {
            writer.write_borrowed(batch)?;
        }
        let failed = |error| Error::data("cannot create an encoded array", error);
        let mut capsules = writer.finish()?.capsules.into_iter();
        let capsule =
            capsules.next().ok_or_else(|| failed(ApiError::internal("the exporter returned no capsule")))?;
        // SAFETY: a capsule of this name contains an encoded array, whose producer guarantees its
        // lists' lengths.
        capsule
            .take::<abi::EncodedArray>()
            .and_then(|raw| unsafe { EncodedArray::from_raw(raw) })
            .map_err(failed)
    }

    /// Converts the types of the array's nodes to Arrow types.
    ///
    /// # Errors
    /// The errors of [`Session::encoded_type`].
    pub fn with_arrow_types(&self, array: EncodedArray) -> Result<EncodedArray> {
        if (0..array.n_nodes()).all(|i| array.node(i).is_ok_and(|node| node.dtype().is_none())) {
            return Ok(array);
        }
        with_types(array, |node| {
            let schema = export_field(&self.encoded_type(node)?);
            schema.map(LogicalType::Schema).map_err(type_error)
        })
    }

    /// Converts the types of the array's nodes to Vortex types.
    ///
    /// # Errors
    /// The errors of [`Session::encode_uncompressed`].
    pub fn with_vortex_types(&self, array: EncodedArray) -> Result<EncodedArray> {
        let all = (0..array.n_nodes()).all(|i| array.node(i).is_ok_and(|node| node.dtype().is_some()));
        if all {
            return Ok(array);
        }
        let mut types: HashMap<Field, Vec<u8>> = HashMap::new();
        with_types(array, |node| {
            if let Some(dtype) = node.dtype() {
                return Ok(LogicalType::Dtype(dtype.to_vec()));
            }
            let field = self.encoded_type(node)?.with_name("");
            if let Some(known) = types.get(&field) {
                return Ok(LogicalType::Dtype(known.clone()));
            }
            // An array without values suffices, because an exporter writes the type of an empty
            // array too.
            let none = self.encode_uncompressed(&Arc::new(Schema::new(vec![field.clone()])), &[])?;
            let dtype = none.root().map_err(type_error)?.dtype().unwrap_or_default().to_vec();
            types.insert(field, dtype.clone());
            Ok(LogicalType::Dtype(dtype))
        })
    }

    /// Returns the type of a node, which may have an Arrow type or a Vortex type.
    ///
    /// # Errors
    /// [`Error::Usage`] if the node has a Vortex type and no plugin of the session reads Vortex
    /// types, [`Error::Data`] or [`Error::Plugin`] if the type is malformed.
    pub fn encoded_type(&self, node: EncodedNode<'_>) -> Result<Field> {
        match node.dtype() {
            Some(dtype) => self.vortex_type(node.encoding(), dtype),
            // SAFETY: a node has a dtype or a schema, and the schema lives as long as the node's
            // array.
            None => node.schema().and_then(|schema| unsafe { import_field_ref(schema) }).map_err(type_error),
        }
    }

    /// Converts a serialised Vortex type to a field without a name. Errors name `encoding`.
    ///
    /// # Errors
    /// The errors of [`Session::encoded_type`].
    pub fn vortex_type(&self, encoding: &str, dtype: &[u8]) -> Result<Field> {
        let types = self.vortex_types();
        if let Some(known) = types.get(dtype) {
            return Ok(known);
        }
        // A node without values suffices, because an importer returns the schema before it decodes
        // anything.
        let alone = NodeParts {
            encoding: encoding.to_owned(),
            logical_type: LogicalType::Dtype(dtype.to_vec()),
            length: 0,
            metadata: Vec::new(),
            n_buffers: 0,
            n_children: 0,
        };
        let alone = EncodedArray::new(vec![alone], Vec::new()).map_err(type_error)?;
        let capsule = Capsule::new(alone.into_raw());
        let reader = self.capsule_format(FORMAT, Way::In)?.read(vec![capsule], None, &Options::new())?;
        let none = || type_error(ApiError::internal("the importer returned no column"));
        let field = reader.schema().fields().first().map(|field| field.as_ref().clone()).ok_or_else(none)?;
        types.remember(dtype, &field);
        Ok(field)
    }
}

fn type_error(error: ApiError) -> Error {
    Error::data("cannot read the types of an encoded array", error)
}

/// Replaces the types of the array's nodes by the types that `logical_type` returns.
fn with_types(
    array: EncodedArray,
    logical_type: impl FnMut(EncodedNode<'_>) -> Result<LogicalType>,
) -> Result<EncodedArray> {
    let (nodes, buffers) = into_parts(array, logical_type)?;
    EncodedArray::new(nodes, buffers)
        .map_err(|error| Error::data("cannot convert the types of an encoded array", error))
}

/// Returns the nodes and buffers of an array. Each node has the type that `logical_type` returns
/// for it.
pub(crate) fn into_parts(
    array: EncodedArray,
    mut logical_type: impl FnMut(EncodedNode<'_>) -> Result<LogicalType>,
) -> Result<(Vec<NodeParts>, EncodedBuffers)> {
    let failed = |error| Error::data("cannot split an encoded array into its parts", error);
    let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
    for index in 0..array.n_nodes() {
        let node = array.node(index).map_err(failed)?;
        nodes.push(NodeParts {
            encoding: node.encoding().to_owned(),
            logical_type: logical_type(node)?,
            length: node.length(),
            metadata: node.metadata().to_vec(),
            n_buffers: node.n_buffers() as u32,
            n_children: node.n_children() as u32,
        });
        for i in 0..node.n_buffers() {
            // SAFETY: this function owns the array and drops it, so no other call takes or reads
            // its buffers.
            buffers.push(unsafe { node.take_buffer(i) }.map_err(failed)?);
        }
    }
    Ok((nodes, buffers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_types_keeps_the_nodes_and_replaces_their_types() {
        let node = |encoding: &str, length, n_children| NodeParts {
            encoding: encoding.into(),
            logical_type: LogicalType::Dtype(vec![1]),
            length,
            metadata: vec![length as u8],
            n_buffers: 0,
            n_children,
        };
        let tree = EncodedArray::new(vec![node("a", 3, 1), node("b", 5, 0)], Vec::new()).unwrap();
        let array = with_types(tree, |node| Ok(LogicalType::Dtype(vec![2, node.length() as u8]))).unwrap();
        let fields = |index| {
            let node = array.node(index).unwrap();
            let (dtype, metadata) = (node.dtype().unwrap().to_vec(), node.metadata().to_vec());
            (node.encoding().to_owned(), node.length(), dtype, metadata, node.n_children())
        };
        assert_eq!(array.n_nodes(), 2);
        assert_eq!(fields(0), ("a".into(), 3, vec![2, 3], vec![3], 1));
        assert_eq!(fields(1), ("b".into(), 5, vec![2, 5], vec![5], 0));
    }
}
