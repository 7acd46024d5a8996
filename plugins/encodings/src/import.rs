//! Imports encoded arrays from capsules and bytes. The session decodes them to a batch of one
//! column.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::metadata::pairs;
use crossdock_arrays::{
    DeviceBatch, call_stream, export_batch, export_field, export_schema, import_batch, import_field_ref,
    import_schema_ref,
};
use crossdock_memory::{Memory, read_encoded};
use crossdock_plugin_api::encoded::blob;
use crossdock_plugin_api::{
    BatchStream, Call, Capsules, EncodedArray, EncodedNode, Error, Format, Honoured, Host, Input,
    LogicalType, NodeParts, Owned, ReadRequest, Result, abi,
};

use crate::wire::dtype;
use crate::wire::dtype::{EXTENSION_METADATA, EXTENSION_NAME};

pub(crate) const CAPSULES: &str = "encoded-array";
const BYTES: &str = "encodings";

pub(crate) fn formats() -> Vec<Format> {
    let capsules = Format {
        capsules: vec!["crossdock_encoded_array".into()],
        ..Format::new(
            CAPSULES,
            "an encoded array: a tree of nodes in a capsule, with types in Arrow's or Vortex's form",
        )
    };
    let bytes = Format {
        bytes: true,
        magics: vec![(0, blob::MAGIC.to_vec())],
        extensions: vec![".cdenc".into()],
        ..Format::new(BYTES, "an encoded array as bytes: one tree for one column")
    };
    vec![capsules, bytes]
}

/// The batch stream of one capsule or file.
struct Stream {
    host: Host,
    memory: Memory,
    /// A schema whose only column is the tree.
    column: Arc<Schema>,
    /// The expected schema if the fields of the tree's structs become the columns of the batches,
    /// and `None` otherwise.
    fields: Option<Arc<Schema>>,
    array: Option<EncodedArray>,
    /// The requested rows that the array has; `None` if all rows are requested.
    ranges: Option<Vec<Range<u64>>>,
    honoured: Honoured,
    /// The ranges that have been decoded, but not returned.
    decoded: VecDeque<DeviceBatch>,
    /// Number of bytes that were read; 0 for a capsule.
    bytes: u64,
}

pub(crate) fn open(
    host: &Host,
    memory: &Memory,
    call: &Call<'_>,
    input: Input,
    request: &ReadRequest<'_>,
) -> Result<Box<dyn BatchStream>> {
    let (format, expected) = (request.format, request.schema);
    let bytes = Cell::new(0);
    let array = match (format, input) {
        (CAPSULES, Input::Capsules(capsules)) => from_capsule(capsules)?,
        (BYTES, Input::Source(source)) => {
            bytes.set(source.len().unwrap_or(0));
            read_encoded(memory, &source, call.device(), |done, total| {
                bytes.set(done);
                call.progress(done, total);
                call.check_cancelled()
            })?
        }
        (CAPSULES, Input::Source(_)) => {
            return Err(Error::invalid_argument(format!("{format}: the input is bytes, expected a capsule")));
        }
        _ => return Err(Error::invalid_argument(format!("{format}: the input is capsules, expected bytes"))),
    };
    let array = with_schemas(array)?;
    // SAFETY: `with_schemas` has given each node a valid schema, which lives as long as the array.
    let field = unsafe { import_field_ref(array.root()?.schema()?) }?;
    let root = Field::new("", field.data_type().clone(), field.is_nullable())
        .with_metadata(field.metadata().clone());
    let column = Arc::new(Schema::new(vec![root]));
    // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that lives until
    // the call returns.
    let expected = expected.map(|expected| unsafe { import_schema_ref(expected) }).transpose()?;
    let fields = match expected {
        Some(expected) => fields_of(format, &column, expected)?,
        None => None,
    };
    let len = array.root()?.length();
    let within = |rows: &Range<u64>| rows.start.min(len)..rows.end.min(len);
    let ranges = request.selection.rows.as_ref().map(|ranges| {
        let ranges = ranges.iter().map(within).filter(|rows| !rows.is_empty());
        ranges.collect::<Vec<_>>()
    });
    let n_rows = ranges.as_ref().map_or(len, |ranges| ranges.iter().map(|rows| rows.end - rows.start).sum());
    Ok(Box::new(Stream {
        host: host.clone(),
        memory: memory.clone(),
        column,
        fields,
        array: Some(array),
        honoured: Honoured { rows: ranges.is_some(), n_rows: Some(n_rows), ..Honoured::default() },
        ranges,
        decoded: VecDeque::new(),
        bytes: bytes.get(),
    }))
}

/// Compares the tree's column with the expected schema. Returns the schema if its columns are the
/// fields of the tree's structs.
///
/// The result keeps the expected names and metadata, which Vortex's types do not have.
fn fields_of(format: &str, actual: &Schema, expected: Schema) -> Result<Option<Arc<Schema>>> {
    let same = actual.fields().len() == expected.fields().len()
        && actual.fields().iter().zip(expected.fields()).all(|(actual, expected)| {
            actual.name() == expected.name() && actual.data_type().equals_datatype(expected.data_type())
        });
    if same {
        return Ok(None);
    }
    let mismatch = |expected: &dyn Display, got: &dyn Display| {
        Err(Error::invalid_argument(format!("{format}: expected {expected}, but the array has {got}")))
    };
    let (fields, root) = match actual.fields().first() {
        Some(root) if !root.is_nullable() => match root.data_type() {
            DataType::Struct(fields) => (fields, root),
            _ => return mismatch(&describe(&expected), &describe(actual)),
        },
        _ => return mismatch(&describe(&expected), &describe(actual)),
    };
    if fields.len() != expected.fields().len() || !root.metadata().is_empty() {
        return mismatch(&describe(&expected), &describe(actual));
    }
    for (actual, expected) in fields.iter().zip(expected.fields()) {
        if actual.name() != expected.name() {
            return mismatch(
                &format_args!("a column '{}'", expected.name()),
                &format_args!("'{}'", actual.name()),
            );
        }
        if !is_same(actual, expected) {
            let typed = |field: &Field| {
                let nulls = if field.is_nullable() { "" } else { " without nulls" };
                let extension = field.metadata().get(EXTENSION_NAME);
                let extension = extension.map(|name| format!(" as {name}")).unwrap_or_default();
                format!("{}{extension}{nulls}", crossdock_arrays::type_name(field.data_type()))
            };
            let actual = typed(actual);
            return mismatch(&format_args!("column '{}' of {}", expected.name(), typed(expected)), &actual);
        }
    }
    Ok(Some(Arc::new(expected)))
}

fn describe(schema: &Schema) -> String {
    let fields = schema
        .fields()
        .iter()
        .map(|f| format!("'{}': {}", f.name(), crossdock_arrays::type_name(f.data_type())));
    format!("[{}]", fields.collect::<Vec<_>>().join(", "))
}

/// Whether two fields have the same type, nullability and extension type. Ignores the names of list
/// elements and map entries, and all metadata except the extension type. Vortex's types do not have
/// these names and metadata.
fn is_same(actual: &Field, expected: &Field) -> bool {
    let extension = |field: &Field| {
        let keys = [EXTENSION_NAME.as_bytes(), EXTENSION_METADATA.as_bytes()];
        let pairs = pairs(field.metadata()).into_iter();
        pairs.filter(|(key, value)| keys.contains(&&key[..]) && !value.is_empty()).collect::<BTreeMap<_, _>>()
    };
    let types = match (actual.data_type(), expected.data_type()) {
        (DataType::Struct(actual), DataType::Struct(expected)) => {
            actual.len() == expected.len()
                && actual
                    .iter()
                    .zip(expected)
                    .all(|(actual, expected)| actual.name() == expected.name() && is_same(actual, expected))
        }
        (DataType::List(actual), DataType::List(expected)) => is_same(actual, expected),
        (DataType::FixedSizeList(actual, n), DataType::FixedSizeList(expected, m)) => {
            n == m && is_same(actual, expected)
        }
        (DataType::Map(actual, actual_sorted), DataType::Map(expected, sorted)) => {
            actual_sorted == sorted && is_same_entry(actual, expected)
        }
        (actual, expected) => actual == expected,
    };
    types && actual.is_nullable() == expected.is_nullable() && extension(actual) == extension(expected)
}

/// Like [`is_same`], for the entries of a map. Ignores the names of the entries' fields.
fn is_same_entry(actual: &Field, expected: &Field) -> bool {
    let (DataType::Struct(actual), DataType::Struct(expected)) = (actual.data_type(), expected.data_type())
    else {
        return false;
    };
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(actual, expected)| is_same(actual, expected))
}

fn from_capsule(mut capsules: Capsules) -> Result<EncodedArray> {
    let (Some(capsule), None) = (capsules.next(), capsules.next()) else {
        return Err(Error::invalid_argument("encoded-array: expected 1 capsule, got none or several"));
    };
    // SAFETY: the capsule's name guarantees the struct, and the producer of a capsule guarantees
    // that its pointers are valid.
    unsafe { EncodedArray::from_raw(capsule.take::<abi::EncodedArray>()?) }
}

impl BatchStream for Stream {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(self.fields.as_ref().unwrap_or(&self.column))
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        if let Some(array) = self.array.take() {
            // One range includes all requested ranges, because nodes that cannot be decoded in
            // parts would be decoded completely for each of them.
            let ranges = self.ranges.take();
            let hull = match ranges.as_deref() {
                Some([first, .., last]) => Some(first.start..last.end),
                Some([only]) => Some(only.clone()),
                Some([]) => return Ok(None),
                None => None,
            };
            let batch = self.host.decode(call, array, hull.clone())?;
            call.progress(self.bytes, self.bytes);
            if self.fields.is_none() && ranges.as_ref().is_none_or(|ranges| ranges.len() == 1) {
                return Ok(Some(batch));
            }
            let batch = self.columns(batch)?;
            match (ranges, hull) {
                (Some(ranges), Some(hull)) => {
                    let slice = |rows: Range<u64>| {
                        batch.slice((rows.start - hull.start) as usize, (rows.end - rows.start) as usize)
                    };
                    self.decoded = ranges.into_iter().map(slice).collect::<Result<_>>()?;
                }
                _ => self.decoded.push_back(batch),
            }
        }
        let Some(batch) = self.decoded.pop_front() else { return Ok(None) };
        let stream = call_stream(&self.memory, call, batch.device())?;
        export_batch(&batch, false, &stream).map(Some)
    }

    fn honoured(&self) -> Honoured {
        self.honoured
    }
}

impl Stream {
    /// Converts a decoded batch to the columns of the stream's schema.
    fn columns(&self, batch: Owned<abi::Batch>) -> Result<DeviceBatch> {
        let Some(fields) = &self.fields else { return import_batch(batch, &self.column, &self.memory) };
        // `fields_of` has compared the types of the structs with the expected types.
        let structs = Field::new("", DataType::Struct(fields.fields().clone()), false);
        let batch = import_batch(batch, &Arc::new(Schema::new(vec![structs])), &self.memory)?;
        let (len, device) = (batch.len(), batch.device());
        let columns = batch.column(0).into_iter().flat_map(|structs| {
            structs.children().iter().map(|child| child.slice(structs.offset(), structs.len()))
        });
        let columns = columns.collect::<Result<_>>()?;
        DeviceBatch::try_new(fields.clone(), len, columns)?.with_default_device(device)
    }
}

/// Converts types in Vortex's form to Arrow schemas.
fn with_schemas(array: EncodedArray) -> Result<EncodedArray> {
    let nodes = (0..array.n_nodes()).map(|index| array.node(index)).collect::<Result<Vec<_>>>()?;
    if nodes.iter().all(|node| node.dtype().is_none()) {
        return Ok(array);
    }
    let n_buffers = nodes.iter().map(EncodedNode::n_buffers).sum();
    let (mut parts, mut buffers) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(n_buffers));
    for node in nodes {
        for i in 0..node.n_buffers() {
            // SAFETY: this function owns the array, so no other code takes its buffers.
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
        // SAFETY: a node without a Vortex type has a valid schema, which lives as long as the
        // array.
        None => unsafe { import_field_ref(node.schema()?) }?,
    };
    export_field(&field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(data_type: DataType) -> Field {
        Field::new("v", data_type, false)
    }

    fn map(key: &str, value: DataType, sorted: bool) -> DataType {
        let entry = vec![Field::new(key, DataType::Utf8, false), Field::new("value", value, true)];
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry.into()), false)), sorted)
    }

    fn list(element: &str, data_type: DataType) -> DataType {
        DataType::List(Arc::new(Field::new(element, data_type, true)))
    }

    fn fixed(n: i32, data_type: DataType) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", data_type, true)), n)
    }

    fn structs(names: &[&str]) -> DataType {
        DataType::Struct(names.iter().map(|name| Field::new(*name, DataType::Int8, true)).collect())
    }

    #[test]
    fn is_same_ignores_names_of_list_elements_and_map_keys() {
        use DataType::{Int8, Int16};
        for (one, other, same) in [
            (Int8, Int8, true),
            (Int8, Int16, false),
            (list("item", Int8), list("element", Int8), true),
            (list("item", Int8), list("item", Int16), false),
            (fixed(2, Int8), fixed(2, Int8), true),
            (fixed(2, Int8), fixed(3, Int8), false),
            (fixed(2, Int8), fixed(2, Int16), false),
            (map("key", Int8, true), map("keys", Int8, true), true),
            (map("key", Int8, true), map("key", Int8, false), false),
            (map("key", Int8, true), map("key", Int16, true), false),
            (structs(&["a", "b"]), structs(&["a", "b"]), true),
            (structs(&["a", "b"]), structs(&["a", "c"]), false),
            (structs(&["a", "b"]), structs(&["a"]), false),
        ] {
            assert_eq!(is_same(&field(one.clone()), &field(other.clone())), same, "{one} {other}");
            assert_eq!(is_same(&field(other.clone()), &field(one.clone())), same, "{other} {one}");
            assert!(!is_same(&field(one.clone()), &field(one).with_nullable(true)));
        }
    }

    #[test]
    fn is_same_ignores_all_metadata_except_extension_types() {
        let with = |key: &str, value: &str| {
            let metadata = std::collections::HashMap::from([(key.to_owned(), value.to_owned())]);
            field(DataType::Int8).with_metadata(metadata)
        };
        let plain = field(DataType::Int8);
        assert!(is_same(&plain, &with("note", "x")));
        assert!(is_same(&plain, &with(EXTENSION_METADATA, "")));
        assert!(!is_same(&plain, &with(EXTENSION_NAME, "a.b")));
        assert!(!is_same(&with(EXTENSION_NAME, "a.c"), &with(EXTENSION_NAME, "a.b")));
        assert!(is_same(&with(EXTENSION_NAME, "a.b"), &with(EXTENSION_NAME, "a.b")));
    }
}
