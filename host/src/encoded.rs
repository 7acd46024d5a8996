//! Encoded arrays that are not decoded yet: as bytes, and what they are.

use std::collections::HashMap;

use arrow_schema::Field;
use crossdock_arrays::{export_field, import_field_ref};
use crossdock_memory::{read_encoded, write_encoded};
use crossdock_plugin_api::{
    Capsule, EncodedArray, EncodedNode, Error as ApiError, LogicalType, NodeParts, Options,
    Result as ApiResult, Source,
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
        read_encoded(self.memory(), &source, self.device())
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

    /// The same array with its types as Arrow writes them.
    ///
    /// # Errors
    /// As [`Session::encoded_type`].
    pub fn with_arrow_types(&self, array: EncodedArray) -> Result<EncodedArray> {
        let failed = |error| Error::data("cannot tell the types of an encoded array", error);
        // Trees repeat few types.
        let mut types: HashMap<Vec<u8>, Field> = HashMap::new();
        let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
        for index in 0..array.n_nodes() {
            let node = array.node(index).map_err(failed)?;
            let field = match node.dtype().and_then(|dtype| types.get(dtype)) {
                Some(known) => known.clone(),
                None => self.encoded_type(node)?,
            };
            nodes.push(NodeParts {
                encoding: node.encoding().to_owned(),
                logical_type: LogicalType::Schema(export_field(&field).map_err(failed)?),
                length: node.length(),
                metadata: node.metadata().to_vec(),
                n_buffers: node.n_buffers() as u32,
                n_children: node.n_children() as u32,
            });
            types.extend(node.dtype().map(|dtype| (dtype.to_vec(), field)));
            for i in 0..node.n_buffers() {
                // SAFETY: the array is ours alone, and goes.
                buffers.push(unsafe { node.take_buffer(i) }.map_err(failed)?);
            }
        }
        EncodedArray::new(nodes, buffers).map_err(failed)
    }

    /// A node's type, whoever wrote it; without a name.
    ///
    /// # Errors
    /// [`Error::Usage`] where it is as Vortex writes types and no plugin of the session reads those; [`Error::Data`] and
    /// [`Error::Plugin`] where it is none.
    pub fn encoded_type(&self, node: EncodedNode<'_>) -> Result<Field> {
        let failed = |error| Error::data("cannot tell the type of an encoded array", error);
        let Some(dtype) = node.dtype() else {
            // SAFETY: a node has a schema, which lives as long as its array, or a dtype.
            return node.schema().and_then(|schema| unsafe { import_field_ref(schema) }).map_err(failed);
        };
        // A node of this type and nothing else: an importer tells its batches' types before it decodes anything.
        let alone = NodeParts {
            encoding: node.encoding().to_owned(),
            logical_type: LogicalType::Dtype(dtype.to_vec()),
            length: node.length(),
            metadata: Vec::new(),
            n_buffers: 0,
            n_children: 0,
        };
        let alone = EncodedArray::new(vec![alone], Vec::new()).map_err(failed)?;
        let capsule = Capsule::new(alone.into_raw());
        let reader = self.capsule_format(FORMAT, Way::In)?.read(vec![capsule], None, &Options::new())?;
        let none = || failed(ApiError::internal("its importer gave no column"));
        reader.schema().fields().first().map(|field| field.as_ref().clone()).ok_or_else(none)
    }
}
