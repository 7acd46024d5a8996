//! Encoded arrays in capsules and as bytes, decoded by the session: a batch of one column.

use std::cell::Cell;
use std::sync::Arc;

use arrow_schema::{Field, Schema};
use crossdock_arrays::{export_field, export_schema, import_field_ref, import_schema_ref};
use crossdock_memory::{Memory, read_encoded};
use crossdock_plugin_api::encoded::blob;
use crossdock_plugin_api::{
    BatchStream, Call, Capsules, EncodedArray, EncodedNode, Error, Format, Host, Input, LogicalType,
    NodeParts, Owned, Result, abi,
};

use crate::wire::dtype;

pub(crate) const CAPSULES: &str = "encoded-array";
const BYTES: &str = "encodings";

pub(crate) fn formats() -> Vec<Format> {
    let capsules = Format {
        capsules: vec!["crossdock_encoded_array".into()],
        ..Format::new(
            CAPSULES,
            "an encoded array: a tree of nodes in a capsule, with types as Arrow or as Vortex writes them",
        )
    };
    let bytes = Format {
        bytes: true,
        magics: vec![(0, blob::MAGIC.to_vec())],
        endings: vec![".cdenc".into()],
        ..Format::new(BYTES, "an encoded array as bytes: one tree, which is one column")
    };
    vec![capsules, bytes]
}

/// What one capsule, or one file, holds.
struct Stream {
    host: Host,
    schema: Arc<Schema>,
    array: Option<EncodedArray>,
    /// That were read; 0 where it is a capsule.
    bytes: u64,
}

pub(crate) fn open(
    host: &Host,
    memory: &Memory,
    call: &Call<'_>,
    format: &str,
    input: Input,
    expected: Option<&abi::ArrowSchema>,
) -> Result<Box<dyn BatchStream>> {
    let bytes = Cell::new(0);
    let array = match (format, input) {
        (CAPSULES, Input::Capsules(capsules)) => in_capsule(capsules)?,
        (BYTES, Input::Source(source)) => {
            bytes.set(source.len().unwrap_or(0));
            read_encoded(memory, &source, call.device(), |done, total| {
                bytes.set(done);
                call.progress(done, total);
                call.check_cancelled()
            })?
        }
        (CAPSULES, Input::Source(_)) => {
            return Err(Error::invalid_argument(format!("{format}: bytes were given, expected a capsule")));
        }
        _ => return Err(Error::invalid_argument(format!("{format}: capsules were given, expected bytes"))),
    };
    let array = with_schemas(array)?;
    // SAFETY: each node has a schema now, which lives as long as the array.
    let field = unsafe { import_field_ref(array.root()?.schema()?) }?;
    let root = Field::new("", field.data_type().clone(), field.is_nullable())
        .with_metadata(field.metadata().clone());
    let schema = Arc::new(Schema::new(vec![root]));
    if let Some(expected) = expected {
        // SAFETY: the caller's schema, alive for the call.
        expect(format, &schema, &unsafe { import_schema_ref(expected) }?)?;
    }
    Ok(Box::new(Stream { host: host.clone(), schema, array: Some(array), bytes: bytes.get() }))
}

/// A tree is one column without a name, of the root's type: a caller who expects another is told so.
fn expect(format: &str, own: &Schema, expected: &Schema) -> Result<()> {
    let same = own.fields().len() == expected.fields().len()
        && own.fields().iter().zip(expected.fields()).all(|(own, expected)| {
            own.name() == expected.name() && own.data_type().equals_datatype(expected.data_type())
        });
    if same {
        return Ok(());
    }
    let words = |schema: &Schema| {
        let fields = schema.fields().iter().map(|f| format!("'{}': {}", f.name(), f.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let (own, expected) = (words(own), words(expected));
    Err(Error::invalid_argument(format!(
        "{format}: the array has a schema of its own: expected [{expected}], got [{own}]"
    )))
}

fn in_capsule(mut capsules: Capsules) -> Result<EncodedArray> {
    let (Some(capsule), None) = (capsules.next(), capsules.next()) else {
        return Err(Error::invalid_argument("encoded-array: expected one capsule, got none or several"));
    };
    // SAFETY: under its name a capsule holds such an array, and whoever made it vouches for its lists.
    unsafe { EncodedArray::from_raw(capsule.take::<abi::EncodedArray>()?) }
}

impl BatchStream for Stream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        let Some(array) = self.array.take() else { return Ok(None) };
        let batch = self.host.decode(call, array)?;
        call.progress(self.bytes, self.bytes);
        Ok(Some(batch))
    }
}

/// The same array, the types that Vortex wrote read.
fn with_schemas(array: EncodedArray) -> Result<EncodedArray> {
    let nodes = (0..array.n_nodes()).map(|index| array.node(index)).collect::<Result<Vec<_>>>()?;
    if nodes.iter().all(|node| node.dtype().is_none()) {
        return Ok(array);
    }
    let n_buffers = nodes.iter().map(EncodedNode::n_buffers).sum();
    let (mut parts, mut buffers) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(n_buffers));
    for node in nodes {
        for i in 0..node.n_buffers() {
            // SAFETY: the array is this function's alone.
            buffers.push(unsafe { node.take_buffer(i) }?);
        }
        parts.push(NodeParts {
            encoding: node.encoding().to_string(),
            logical_type: LogicalType::Schema(schema_of(node)?),
            length: node.length(),
            metadata: node.metadata().to_vec(),
            n_buffers: u32::try_from(node.n_buffers()).unwrap_or(u32::MAX),
            n_children: u32::try_from(node.n_children()).unwrap_or(u32::MAX),
        });
    }
    EncodedArray::new(parts, buffers)
}

fn schema_of(node: EncodedNode<'_>) -> Result<Owned<abi::ArrowSchema>> {
    let field = match node.dtype() {
        Some(bytes) => dtype::read(bytes).map_err(|e| e.context(node.path()))?,
        // SAFETY: a schema that lives as long as the array.
        None => unsafe { import_field_ref(node.schema()?) }?,
    };
    export_field(&field)
}
