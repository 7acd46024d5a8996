//! Batches to encoded arrays in capsules: trees of nodes that hold values as they are, with types as Vortex writes them.

mod tree;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, check_ends, check_nullability, import_batch, import_schema_ref,
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
            "an encoded array, all of whose nodes hold values as they are: a tree in a capsule, with types as Vortex writes them",
        )
    }]
}

pub(crate) fn plan(schema: &abi::ArrowSchema, from: Device) -> Result<Vec<ColumnPlan>> {
    let schema = borrowed(schema)?;
    let column = |field: &Arc<Field>| {
        // As deep as in the tree.
        let root = match is_column(&schema) {
            true => field.as_ref().clone(),
            false => structs_of(vec![field.clone()].into()),
        };
        let (verdict, reason) = match dtype_write::write(&root) {
            Ok(_) => (Verdict::ZeroCopy, "the buffers are lent as they are".to_owned()),
            Err(why) => (Verdict::Unsupported, why.message().to_owned()),
        };
        ColumnPlan { name: field.name().clone(), verdict, to: from, reason }
    };
    Ok(schema.fields().iter().map(column).collect())
}

/// A tree is one column: one without a name alone is it, and all others are the fields of a struct.
fn is_column(schema: &Schema) -> bool {
    matches!(schema.fields().as_ref(), [only] if only.name().is_empty())
}

fn structs_of(fields: Fields) -> Field {
    Field::new("", DataType::Struct(fields), false)
}

fn borrowed(schema: &abi::ArrowSchema) -> Result<Schema> {
    // SAFETY: the caller's schema, alive for the call.
    unsafe { import_schema_ref(schema) }
}

pub(crate) fn begin(memory: &Memory, schema: &abi::ArrowSchema) -> Result<Box<dyn BatchWriter>> {
    let schema = Arc::new(borrowed(schema)?);
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
        check_ends(&batch, &self.schema, &self.memory)?;
        let mut batch = import_batch(batch, &self.schema, &self.memory)?;
        // What has no length of its own in Arrow's structs has one in a tree.
        let stream = call_stream(&self.memory, call, batch.device())?;
        batch.resolve_sizes(&stream)?;
        // A node whose type allows no nulls has no place for them: another value would stand there.
        check_nullability(&batch, &stream)?;
        self.batches.push(self.whole(batch)?);
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        if self.batches.is_empty() {
            self.batches.push(DeviceArray::empty(self.root.data_type())?);
        }
        let array = Tree::of(&self.memory, &self.root, &self.batches)?;
        self.batches.clear();
        Ok(vec![Capsule::new(array.into_raw())])
    }
}

impl Writer {
    fn whole(&self, batch: DeviceBatch) -> Result<DeviceArray> {
        if self.is_column {
            return batch.column(0).cloned().ok_or_else(|| Error::internal("a batch lacks its column"));
        }
        let len = batch.len();
        let data_type = self.root.data_type().clone();
        DeviceArray::try_new(data_type, len, 0, Some(0), vec![None], batch.into_columns(), None)
    }
}
