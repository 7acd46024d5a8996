//! Passes batches between arrow-rs and the host through Arrow's C structs.

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::{DataType, SchemaRef};
use crossdock_arrays::{DeviceBatch, export_batch_to_external};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, Error, Owned, Result, abi};

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<abi::ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<abi::ArrowArray>());

/// Passes a batch in host memory to the host.
pub fn to_host(batch: RecordBatch) -> Owned<abi::Batch> {
    let array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
    // SAFETY: both types declare Arrow's C struct, and the `transmute` moves its ownership.
    let array = unsafe { std::mem::transmute::<FFI_ArrowArray, abi::ArrowArray>(array) };
    let mut out = abi::Batch::new();
    out.array.array = array;
    out.array.device_type = Device::CPU.r#type;
    out.array.device_id = Device::CPU.id;
    // SAFETY: the struct owns the array, and there is no other copy of it.
    unsafe { Owned::new(out) }
}

/// Passes a batch in host memory, whose contents were validated, to arrow-rs. The result has the
/// columns of `schema`, whose types have the layouts of the batch's types, and refers to the
/// buffers of the batch.
///
/// # Errors
/// Internal if arrow-rs rejects the batch.
pub fn from_host(batch: &DeviceBatch, schema: &SchemaRef, stream: &Stream) -> Result<RecordBatch> {
    let len = batch.len();
    let mut raw = export_batch_to_external(batch, false, stream)?.into_raw();
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
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(len));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(failed)
}
