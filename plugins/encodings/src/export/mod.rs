//! Exports batches as encoded arrays in capsules. The nodes hold plain values, with types in
//! Vortex's form.

mod tree;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, check_last_offsets, check_nullability, import_batch,
    import_schema_ref,
};
use crossdock_memory::Memory;
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, ColumnPlan, Device, Error, Format, Owned, Result, Verdict, abi,
};

use crate::import::CAPSULES;
use crate::wire::dtype_write;
use tree::Tree;

pub(crate) fn formats() -> Vec<Format> {
    vec![Format {
        capsules: vec!["crossdock_encoded_array".into()],
        ..Format::new(
            CAPSULES,
            "an encoded array of plain values: a tree of nodes in a capsule, with types in Vortex's form",
        )
    }]
}

pub(crate) fn plan(schema: &abi::ArrowSchema, from: Device) -> Result<Vec<ColumnPlan>> {
    let schema = import_borrowed_schema(schema)?;
    let column = |field: &Arc<Field>| {
        // The type is checked at the column's depth in the tree, because the nesting depth of types
        // is limited.
        let root = match is_column(&schema) {
            true => field.as_ref().clone(),
            false => structs_of(vec![field.clone()].into()),
        };
        let (verdict, reason) = match dtype_write::write(&root) {
            Ok(_) => (Verdict::ZeroCopy, "the nodes refer to the buffers".to_owned()),
            Err(why) => (Verdict::Unsupported, why.message().to_owned()),
        };
        ColumnPlan { name: field.name().clone(), verdict, to: from, reason }
    };
    Ok(schema.fields().iter().map(column).collect())
}

/// Whether the schema has only one column, without a name. This column becomes the root of the
/// tree. The columns of any other schema become the fields of a struct.
fn is_column(schema: &Schema) -> bool {
    matches!(schema.fields().as_ref(), [only] if only.name().is_empty())
}

fn structs_of(fields: Fields) -> Field {
    Field::new("", DataType::Struct(fields), false)
}

fn import_borrowed_schema(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the plugin boundary requires the caller to pass a valid ArrowSchema that lives until
    // the call returns.
    unsafe { import_schema_ref(schema) }
}

pub(crate) fn begin(memory: &Memory, schema: &abi::ArrowSchema) -> Result<Box<dyn BatchWriter>> {
    let schema = Arc::new(import_borrowed_schema(schema)?);
    let is_column = is_column(&schema);
    let root = match schema.fields().first() {
        Some(only) if is_column => only.as_ref().clone(),
        _ => structs_of(schema.fields().clone()),
    };
    dtype_write::write(&root)?;
    Ok(Box::new(Writer { memory: memory.clone(), schema, root, is_column, batches: Vec::new() }))
}

struct Writer {
    memory: Memory,
    schema: SchemaRef,
    root: Field,
    is_column: bool,
    batches: Vec<DeviceArray>,
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        check_last_offsets(&batch, &self.schema, &self.memory)?;
        let mut batch = import_batch(batch, &self.schema, &self.memory)?;
        // Nodes state the sizes of their buffers, which Arrow's structs do not contain.
        let stream = call_stream(&self.memory, call, batch.device())?;
        batch.resolve_sizes(&stream)?;
        // A node of a non-nullable type has no validity, so its nulls would become values.
        check_nullability(&batch, &stream)?;
        self.batches.push(self.root_array(batch)?);
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        if self.batches.is_empty() {
            self.batches.push(DeviceArray::empty(self.root.data_type())?);
        }
        let array = Tree::encode(&self.memory, &self.root, &self.batches)?;
        self.batches.clear();
        Ok(vec![Capsule::new(array.into_raw())])
    }
}

impl Writer {
    fn root_array(&self, batch: DeviceBatch) -> Result<DeviceArray> {
        if self.is_column {
            return batch.column(0).cloned().ok_or_else(|| Error::internal("a batch lacks its column"));
        }
        let len = batch.len();
        let data_type = self.root.data_type().clone();
        DeviceArray::try_new(data_type, len, 0, Some(0), vec![None], batch.into_columns(), None)
    }
}
