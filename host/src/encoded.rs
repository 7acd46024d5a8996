//! Encoded arrays that are not decoded yet: as bytes, and what they are.

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

/// The format of arrays in capsules, whose plugin knows types as Vortex writes them.
const FORMAT: &str = "encoded-array";

impl Session {
    /// The encoded array whose bytes `input` has. Its buffers lie where those are, in host memory.
    ///
    /// # Errors
    /// [`Error::Data`] for what is no such thing, whole and alone.
    pub fn read_encoded(&self, input: &Input) -> Result<EncodedArray> {
        let source = Source::new(input.shared());
        let go_on = |_, _| {
            if self.cancel_flag().is_cancelled() { Err(ApiError::cancelled("cancelled")) } else { Ok(()) }
        };
        read_encoded(self.memory(), &source, self.device(), go_on)
            .map_err(|error| Error::data(format!("cannot read '{}'", input.name()), error))
    }

    /// An encoded array as bytes, as [`Session::read_encoded`] and the format `encodings` read them. What was read is written as
    /// the same bytes again.
    ///
    /// # Errors
    /// [`Error::Data`] where buffers were taken, or cannot be brought to the host.
    pub fn encoded_to_bytes(&self, array: EncodedArray) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let write = |piece: &[u8]| -> ApiResult<()> {
            let no_room = |_| ApiError::out_of_memory(format!("{} bytes", piece.len()));
            bytes.try_reserve(piece.len()).map_err(no_room)?;
            bytes.extend_from_slice(piece);
            Ok(())
        };
        write_encoded(self.memory(), array, write)
            .map_err(|error| Error::data("cannot write an encoded array", error))?;
        Ok(bytes)
    }

    /// A column as an encoded array of nodes that hold values as they are, with types as Vortex writes them; nothing is copied.
    /// Several columns, or one with a name, become the fields of a struct.
    ///
    /// # Errors
    /// [`Error::Usage`] where no plugin of the session writes those types, and [`Error::Plugin`] for types that Vortex does not
    /// have.
    pub fn encode_as_it_is(&self, schema: &SchemaRef, batches: &[DeviceBatch]) -> Result<EncodedArray> {
        let mut writer = self.capsule_format(FORMAT, Way::Out)?.write(schema, &Options::new())?;
        for batch in batches {
            writer.write_borrowed(batch)?;
        }
        let failed = |error| Error::data("cannot make an encoded array", error);
        let mut capsules = writer.finish()?.capsules.into_iter();
        let capsule =
            capsules.next().ok_or_else(|| failed(ApiError::internal("its exporter gave no capsule")))?;
        // SAFETY: under its name a capsule holds such an array, and whoever made it vouches for its lists.
        capsule
            .take::<abi::EncodedArray>()
            .and_then(|raw| unsafe { EncodedArray::from_raw(raw) })
            .map_err(failed)
    }

    /// The same array with its types as Arrow writes them.
    ///
    /// # Errors
    /// As [`Session::encoded_type`].
    pub fn with_arrow_types(&self, array: EncodedArray) -> Result<EncodedArray> {
        if (0..array.n_nodes()).all(|i| array.node(i).is_ok_and(|node| node.dtype().is_none())) {
            return Ok(array);
        }
        with_types(array, |node| {
            let schema = export_field(&self.encoded_type(node)?);
            schema.map(LogicalType::Schema).map_err(untold)
        })
    }

    /// The same array with its types as Vortex writes them, for those who read no others.
    ///
    /// # Errors
    /// As [`Session::encode_as_it_is`].
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
            // An exporter writes the types of arrays without values too.
            let none = self.encode_as_it_is(&Arc::new(Schema::new(vec![field.clone()])), &[])?;
            let dtype = none.root().map_err(untold)?.dtype().unwrap_or_default().to_vec();
            types.insert(field, dtype.clone());
            Ok(LogicalType::Dtype(dtype))
        })
    }

    /// A node's type, whoever wrote it.
    ///
    /// # Errors
    /// [`Error::Usage`] where it is as Vortex writes types and no plugin of the session reads those; [`Error::Data`] and
    /// [`Error::Plugin`] where it is none.
    pub fn encoded_type(&self, node: EncodedNode<'_>) -> Result<Field> {
        match node.dtype() {
            Some(dtype) => self.vortex_type(node.encoding(), dtype),
            // SAFETY: a node has a schema, which lives as long as its array, or a dtype.
            None => node.schema().and_then(|schema| unsafe { import_field_ref(schema) }).map_err(untold),
        }
    }

    /// What a type is that Vortex wrote of a node of `encoding`, which errors name; without a name.
    ///
    /// # Errors
    /// As [`Session::encoded_type`].
    pub fn vortex_type(&self, encoding: &str, dtype: &[u8]) -> Result<Field> {
        let types = self.vortex_types();
        if let Some(known) = types.get(dtype) {
            return Ok(known);
        }
        // A node of this type and nothing else: an importer tells its batches' types before it decodes anything.
        let alone = NodeParts {
            encoding: encoding.to_owned(),
            logical_type: LogicalType::Dtype(dtype.to_vec()),
            length: 0,
            metadata: Vec::new(),
            n_buffers: 0,
            n_children: 0,
        };
        let alone = EncodedArray::new(vec![alone], Vec::new()).map_err(untold)?;
        let capsule = Capsule::new(alone.into_raw());
        let reader = self.capsule_format(FORMAT, Way::In)?.read(vec![capsule], None, &Options::new())?;
        let none = || untold(ApiError::internal("its importer gave no column"));
        let field = reader.schema().fields().first().map(|field| field.as_ref().clone()).ok_or_else(none)?;
        types.remember(dtype, &field);
        Ok(field)
    }
}

fn untold(error: ApiError) -> Error {
    Error::data("cannot tell the types of an encoded array", error)
}

/// The array with other types, of which the one of each node is asked for.
fn with_types(
    array: EncodedArray,
    logical_type: impl FnMut(EncodedNode<'_>) -> Result<LogicalType>,
) -> Result<EncodedArray> {
    let (nodes, buffers) = taken_apart(array, logical_type)?;
    EncodedArray::new(nodes, buffers)
        .map_err(|error| Error::data("cannot take an encoded array apart", error))
}

/// Its nodes and buffers, with types of which the one of each node is asked for.
pub(crate) fn taken_apart(
    array: EncodedArray,
    mut logical_type: impl FnMut(EncodedNode<'_>) -> Result<LogicalType>,
) -> Result<(Vec<NodeParts>, EncodedBuffers)> {
    let failed = |error| Error::data("cannot take an encoded array apart", error);
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
            // SAFETY: the array is ours alone, and goes.
            buffers.push(unsafe { node.take_buffer(i) }.map_err(failed)?);
        }
    }
    Ok((nodes, buffers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_is_taken_apart_has_all_nodes_with_the_types_that_are_said() {
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
        let said = |index| {
            let node = array.node(index).unwrap();
            let (dtype, metadata) = (node.dtype().unwrap().to_vec(), node.metadata().to_vec());
            (node.encoding().to_owned(), node.length(), dtype, metadata, node.n_children())
        };
        assert_eq!(array.n_nodes(), 2);
        assert_eq!(said(0), ("a".into(), 3, vec![2, 3], vec![3], 1));
        assert_eq!(said(1), ("b".into(), 5, vec![2, 5], vec![5], 0));
    }
}
