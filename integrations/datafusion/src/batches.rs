//! Converts schemas and batches to the versions of Arrow's crates that DataFusion uses, through the
//! structs of the Arrow C Data Interface. Nothing is copied.

use arrow::array::{RecordBatch, StructArray};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use crossdock_arrow_array::ffi::{FFI_ArrowArray as HostArray, FFI_ArrowSchema as HostSchema, to_ffi};
use crossdock_arrow_array::{Array, RecordBatch as HostBatch, StructArray as HostStructs};
use datafusion::common::Result;
use datafusion::error::DataFusionError;

const _: () = assert!(size_of::<HostArray>() == size_of::<FFI_ArrowArray>());
const _: () = assert!(size_of::<HostSchema>() == size_of::<FFI_ArrowSchema>());

fn schema_struct(schema: HostSchema) -> FFI_ArrowSchema {
    // SAFETY: both types are the struct ArrowSchema of the C Data Interface, whose `release` frees
    // it. The ownership moves.
    unsafe { std::mem::transmute::<HostSchema, FFI_ArrowSchema>(schema) }
}

/// Converts a schema.
pub fn schema(schema: &crossdock_arrow_schema::Schema) -> Result<SchemaRef> {
    let exported = HostSchema::try_from(schema).map_err(|error| DataFusionError::External(error.into()))?;
    Ok(SchemaRef::new(Schema::try_from(&schema_struct(exported))?))
}

/// Converts a batch to a batch of `schema`, which is the converted schema of the batch.
pub fn batch(batch: HostBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let structs = HostStructs::from(batch).to_data();
    let (array, type_of) = to_ffi(&structs).map_err(|error| DataFusionError::External(error.into()))?;
    // SAFETY: both types are the struct ArrowArray of the C Data Interface, whose `release` frees
    // it. The ownership moves.
    let array = unsafe { std::mem::transmute::<HostArray, FFI_ArrowArray>(array) };
    // SAFETY: arrow-rs exported a valid array of this type, whose contents the host has validated.
    let data = unsafe { from_ffi(array, &schema_struct(type_of)) }?;
    Ok(RecordBatch::from(StructArray::from(data)).with_schema(schema.clone())?)
}
