//! Passes record batches and arrays of arrow-rs to and from the host through Arrow's C structs.

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, Field, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, Level, check_nullability, export_batch_to_external, import_array, validate,
};
use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<abi::ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<abi::ArrowArray>());

/// Passes a record batch in host memory to the host, without a copy. The host counts its memory
/// from the moment it receives the batch.
pub fn to_host(batch: RecordBatch) -> Owned<abi::Batch> {
    let mut out = abi::Batch::new();
    out.array.array = exported(&StructArray::from(batch));
    out.array.device_type = Device::CPU.r#type;
    out.array.device_id = Device::CPU.id;
    // SAFETY: the struct owns the array, and there is no other copy of it.
    unsafe { Owned::new(out) }
}

/// Converts an array to one in host memory that the host counts, without a copy.
///
/// # Errors
/// The array does not have the type of `field`.
pub fn to_device_array(array: &ArrayRef, field: &Field, memory: &Memory) -> Result<DeviceArray> {
    // SAFETY: the struct owns the array, and there is no other copy of it.
    let raw = unsafe { Owned::new(exported(array)) };
    let mut array = import_array(raw, field, memory)?;
    // The host counts only buffers of a known size against the budget.
    array.resolve_sizes(&memory.default_stream(Device::CPU)?)?;
    Ok(array)
}

fn exported(array: &dyn Array) -> abi::ArrowArray {
    let array = FFI_ArrowArray::new(&array.to_data());
    // SAFETY: both types declare Arrow's C struct, and the `transmute` moves its ownership.
    unsafe { std::mem::transmute::<FFI_ArrowArray, abi::ArrowArray>(array) }
}

/// Converts a batch in host memory to a record batch that refers to the buffers of the batch.
/// Validates the contents of the buffers first, because arrow-rs relies on them. The types of
/// `schema` have the layouts of the batch's types; otherwise they are equal.
///
/// # Errors
/// Bad data if the contents are invalid or a column that is not nullable contains nulls, internal
/// if arrow-rs rejects the batch.
pub fn from_host(batch: &DeviceBatch, schema: &SchemaRef, stream: &Stream) -> Result<RecordBatch> {
    let mut batch = batch.clone();
    batch.resolve_sizes(stream)?;
    check_nullability(&batch, stream)?;
    validate(&batch, Level::Full, stream)?;
    let len = batch.len();
    let mut raw = export_batch_to_external(&batch, false, stream)?.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array and of the schema. The owner of the
    // schema is dropped here. `from_raw` moves the array, and marks the source as released.
    let array = unsafe {
        drop(Owned::<abi::ArrowSchema>::take(&mut raw.schema));
        FFI_ArrowArray::from_raw((&raw mut raw.array.array).cast())
    };
    // SAFETY: the array was exported from a batch whose columns have the layouts of the types of
    // `schema`, and its contents were validated.
    let data = unsafe { from_ffi_and_data_type(array, DataType::Struct(schema.fields().clone())) };
    let failed = |error| Error::internal(format!("cannot import the batch: {error}"));
    let columns = StructArray::from(data.map_err(failed)?).into_parts().1;
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(failed)
}
