//! Converts tables from and to arrow-rs, through the C Data interface.

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::{Array, RecordBatch, RecordBatchOptions, StructArray, make_array};
use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::{DeviceBatch, Level, export_array, import_batch, validate};
use crossdock_plugin_api::{Device, Error as ApiError, Owned, abi};

use super::{Table, in_table, to_device};
use crate::error::{Error, Result};
use crate::session::Session;

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<abi::ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<abi::ArrowArray>());

impl Table {
    /// Creates a table from record batches. On the device "cpu", the table shares their buffers.
    pub fn from_record_batches(
        session: &Session,
        schema: SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Self> {
        let batches = batches
            .iter()
            .map(|batch| {
                let batch = import_record_batch(session, batch)?;
                to_device(session, batch.with_schema(schema.clone()).map_err(in_table)?)
            })
            .collect::<Result<_>>()?;
        Ok(Self { session: session.clone(), schema, batches })
    }

    /// Creates a table from one record batch.
    pub fn from_record_batch(session: &Session, batch: &RecordBatch) -> Result<Self> {
        Self::from_record_batches(session, batch.schema(), std::slice::from_ref(batch))
    }

    /// Returns the table as record batches in host memory. The record batches share buffers that
    /// are already in host memory. The contents are validated, because arrow-rs does not validate
    /// them. Metadata that record batches cannot hold is stored under the keys of
    /// [`crossdock_arrays::metadata`].
    pub fn to_record_batches(&self) -> Result<Vec<RecordBatch>> {
        self.batches.iter().map(|batch| to_record_batch(&self.session, &self.schema, batch)).collect()
    }

    /// Returns an empty batch with the table's schema.
    pub fn empty_batch(&self) -> Result<DeviceBatch> {
        let batch = import_record_batch(&self.session, &RecordBatch::new_empty(self.schema.clone()))?;
        to_device(&self.session, batch.with_schema(self.schema.clone()).map_err(in_table)?)
    }
}

/// Converts a batch of this schema to a record batch in host memory.
pub(crate) fn to_record_batch(
    session: &Session,
    schema: &SchemaRef,
    batch: &DeviceBatch,
) -> Result<RecordBatch> {
    let stream = session.stream();
    let failed = |error| Error::data("cannot create a record batch", error);
    validate(batch, Level::Full, stream).map_err(failed)?;
    let batch = batch.move_to(stream, Device::CPU).map_err(failed)?;
    // arrow-rs reads the buffers without waiting for events.
    stream.synchronize().map_err(failed)?;
    let arrow_error = |error: arrow_schema::ArrowError| failed(ApiError::internal(error.to_string()));
    let mut columns = Vec::with_capacity(batch.columns().len());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        let raw = export_array(column, stream).map_err(failed)?.into_raw();
        // SAFETY: both types are the struct of the C Data interface (sizes are asserted above).
        // Ownership moves to the copy, because the original has no drop.
        let raw = unsafe { std::ptr::read(std::ptr::from_ref(&raw).cast::<FFI_ArrowArray>()) };
        // SAFETY: `raw` is an array of this type in host memory, exported above, with validated
        // contents.
        let data = unsafe { from_ffi_and_data_type(raw, field.data_type().clone()) }.map_err(arrow_error)?;
        columns.push(make_array(data));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(arrow_error)
}

fn import_record_batch(session: &Session, batch: &RecordBatch) -> Result<DeviceBatch> {
    // `StructArray::new` takes the length from the columns, so it cannot be used without columns.
    let fields = batch.schema().fields().clone();
    let array = if fields.is_empty() {
        StructArray::new_empty_fields(batch.num_rows(), None)
    } else {
        StructArray::new(fields, batch.columns().to_vec(), None)
    };
    let (raw, _schema): (FFI_ArrowArray, FFI_ArrowSchema) = arrow_array::ffi::to_ffi(&array.to_data())
        .map_err(|error| in_table(ApiError::invalid_argument(error.to_string())))?;
    let raw = std::mem::ManuallyDrop::new(raw);
    let mut out = abi::Batch::new();
    // SAFETY: both types are the struct of the C Data interface (sizes are asserted above).
    // Ownership moves to the copy, because the original is a ManuallyDrop.
    out.array.array = unsafe { std::ptr::read(std::ptr::from_ref(&*raw).cast::<abi::ArrowArray>()) };
    out.array.device_type = Device::CPU.r#type;
    out.array.device_id = Device::CPU.id;
    // SAFETY: all fields of `out` are set, and it has no other owner.
    let out = unsafe { Owned::new(out) };
    debug_assert!(matches!(array.data_type(), DataType::Struct(_)));
    import_batch(out, &Arc::clone(&batch.schema()), session.memory()).map_err(in_table)
}
