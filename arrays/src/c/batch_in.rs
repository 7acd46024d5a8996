//! Imports `crossdock_batch`.

use std::ffi::c_char;

use arrow_schema::{FieldRef, Schema, SchemaRef};
use crossdock_memory::{Buffer, Device, Error, ForeignOwner, Memory, Ready, Result, Stream};
use crossdock_plugin_api::{Owned, abi};

use super::array_in::{Foreign, Reader, Root, count, readiness_of_result};
use super::import_schema_ref;
use super::metadata;
use super::plain::{is_plain, plain_columns};
use crate::{DeviceArray, DeviceBatch, PendingBatch, fixed_width};

/// Imports a batch that has the given schema. The producer's array is released when the last buffer
/// of the batch is dropped. The size of a buffer stays unknown if the producer does not declare it.
/// If the number of rows is on the device, the call waits for it; see [`import_pending`].
///
/// # Errors
///
/// Returns an error if the struct violates a rule of the C Data or C Device interface that the host
/// can check without reading contents, or if the batch does not match `schema`.
pub fn import_batch(raw: Owned<abi::Batch>, schema: &SchemaRef, memory: &Memory) -> Result<DeviceBatch> {
    if raw.n_rows_device.is_null() {
        return import(raw, schema, memory, None);
    }
    let pending = import_pending(raw, schema, memory)?;
    pending.settle(&memory.default_stream(pending.device())?)
}

/// Like [`import_batch`], but does not read the number of rows if it is on the device.
pub fn import_pending(raw: Owned<abi::Batch>, schema: &SchemaRef, memory: &Memory) -> Result<PendingBatch> {
    import_with_counter(raw, schema, memory, None)
}

/// Like [`import_batch`], for the result of a call that used `stream`. A result without an event is
/// ready as soon as the pending work of the stream has run, as documented for
/// `crossdock_call.stream`.
pub fn import_result(raw: Owned<abi::Batch>, schema: &SchemaRef, stream: &Stream) -> Result<DeviceBatch> {
    if raw.n_rows_device.is_null() {
        return import(raw, schema, stream.memory(), Some(stream));
    }
    import_pending_result(raw, schema, stream)?.settle(stream)
}

/// Like [`import_result`], but does not read the number of rows if it is on the device.
pub fn import_pending_result(
    raw: Owned<abi::Batch>,
    schema: &SchemaRef,
    stream: &Stream,
) -> Result<PendingBatch> {
    import_with_counter(raw, schema, stream.memory(), Some(stream))
}

/// Returns the number of rows of a batch. If the number is on the device, the call waits for it.
///
/// # Errors
///
/// Returns an error if the number is negative or above the capacity.
pub fn count_rows(batch: &Owned<abi::Batch>, stream: &Stream) -> Result<usize> {
    // SAFETY: `Owned` holds a valid batch, which stays borrowed while the reader is in use.
    let reader = unsafe { Reader::borrowing(&batch.array) }?;
    let capacity = count(batch.array.array.length, "length")?;
    // SAFETY: `Owned` holds a valid batch, which stays borrowed until the counter is read.
    let Some(counter) = (unsafe { reader.counter(batch.n_rows_device) })? else { return Ok(capacity) };
    let schema = SchemaRef::new(Schema::empty());
    let rows = DeviceBatch::from_checked_columns(schema, capacity, Vec::new(), reader.device)?;
    Ok(PendingBatch::with_counter(rows, counter, true).settle(stream)?.len())
}

fn import_with_counter(
    raw: Owned<abi::Batch>,
    schema: &SchemaRef,
    memory: &Memory,
    stream: Option<&Stream>,
) -> Result<PendingBatch> {
    if raw.n_rows_device.is_null() {
        return import(raw, schema, memory, stream).map(PendingBatch::from);
    }
    let ready = stream.map_or(Ok(Ready::Now), |stream| readiness_of_result(&raw.array, stream))?;
    check_schema(&raw, schema)?;
    let raw = raw.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array and of the schema, and each is released
    // separately. The counter, sizes and metadata live as long as the array.
    unsafe {
        let (array, _schema) = (Owned::new(raw.array), Owned::new(raw.schema));
        let root = Root::of(&array);
        let mut reader = Reader::owning(array, memory, ready)?;
        reader.set_sizes(raw.buffer_sizes, raw.n_buffer_sizes);
        let counter = reader.counter(raw.n_rows_device)?;
        let batch = with_metadata(reader.batch(&root, schema, memory)?, raw.metadata)?;
        Ok(match counter {
            Some(counter) => PendingBatch::with_counter(batch, counter, true),
            None => batch.into(),
        })
    }
}

/// Compares the schema that a batch carries, if it carries one, with the expected schema.
fn check_schema(raw: &Owned<abi::Batch>, schema: &SchemaRef) -> Result<()> {
    if raw.schema.release.is_some() {
        // SAFETY: `Owned` holds a valid batch, so its unreleased schema is valid.
        check_types(schema, &unsafe { import_schema_ref(&raw.schema) }?)?;
    }
    Ok(())
}

/// # Safety
/// `metadata` is NULL or a batch's valid metadata.
unsafe fn with_metadata(batch: DeviceBatch, metadata: *const c_char) -> Result<DeviceBatch> {
    if metadata.is_null() {
        return Ok(batch);
    }
    // SAFETY: the caller guarantees that the metadata is valid.
    Ok(batch.with_metadata(unsafe { metadata::read(metadata) }?))
}

fn import(
    raw: Owned<abi::Batch>,
    schema: &SchemaRef,
    memory: &Memory,
    stream: Option<&Stream>,
) -> Result<DeviceBatch> {
    let ready = stream.map_or(Ok(Ready::Now), |stream| readiness_of_result(&raw.array, stream))?;
    check_schema(&raw, schema)?;
    let plain = plain_columns(&raw, schema);
    let raw = raw.into_raw();
    // SAFETY: `into_raw` passed the ownership of the array and of the schema, and each is released
    // separately.
    let (array, _schema) = unsafe { (Owned::new(raw.array), Owned::new(raw.schema)) };
    if let Some(addresses) = plain {
        let batch = import_plain(array, addresses, schema, memory, &ready)?;
        // SAFETY: `raw` is the copy of a valid batch, so its metadata is valid. The metadata lives
        // as long as the array, which `batch` keeps alive.
        return unsafe { with_metadata(batch, raw.metadata) };
    }
    let root = Root::of(&array);
    let mut reader = Reader::owning(array, memory, ready)?;
    reader.set_sizes(raw.buffer_sizes, raw.n_buffer_sizes);
    // SAFETY: `raw` is the copy of a valid batch, so its array, sizes and metadata are valid. They
    // live as long as the array, which the reader's owner keeps alive.
    unsafe { with_metadata(reader.batch(&root, schema, memory)?, raw.metadata) }
}

/// Compares the schema that a batch carries with the expected schema.
fn check_types(expected: &Schema, actual: &Schema) -> Result<()> {
    let types = |schema: &Schema| {
        let types = schema.fields().iter().map(|field| crate::type_name(field.data_type()));
        types.collect::<Vec<_>>().join(", ")
    };
    let same = expected.fields().len() == actual.fields().len()
        && expected
            .fields()
            .iter()
            .zip(actual.fields())
            .all(|(e, a)| e.data_type().equals_datatype(a.data_type()));
    if same {
        return Ok(());
    }
    Err(Error::bad_data(format!(
        "the schema of a batch has [{}], expected [{}]",
        types(actual),
        types(expected)
    )))
}

/// Imports a batch of plain columns. `addresses` contains, for each column, the address of the
/// first value.
fn import_plain(
    array: Owned<abi::ArrowDeviceArray>,
    addresses: Vec<u64>,
    schema: &SchemaRef,
    memory: &Memory,
    ready: &Ready,
) -> Result<DeviceBatch> {
    let device = Device::from_arrow(array.device_type, array.device_id);
    let len = count(array.array.length, "length")?;
    let owner = ForeignOwner::from_peer(Foreign { _array: array, _memory: memory.clone() }, device, memory);
    let column = |(field, address): (&FieldRef, u64)| {
        let data_type = field.data_type();
        let bytes = len * fixed_width(data_type).unwrap_or(0);
        // SAFETY: the array was valid and `plain_columns` checked it, so `len` values of this type
        // begin at `address`. The owner keeps the array alive, and the values are readable after
        // `ready`.
        let values = (address != 0)
            .then(|| unsafe { Buffer::foreign(&owner, device, address, Some(bytes as u64), ready.clone()) });
        DeviceArray {
            data_type: data_type.clone(),
            len,
            offset: 0,
            null_count: Some(0),
            declares_no_nulls: false,
            device: values.as_ref().map(|_| device),
            buffers: vec![None, values],
            children: Vec::new(),
            dictionary: None,
            view_sizes: None,
            depth: 1,
        }
    };
    let columns = schema.fields().iter().zip(addresses).map(column).collect();
    DeviceBatch::from_checked_columns(schema.clone(), len, columns, device)
}

/// Checks, without importing `array`, that [`import_batch`] would accept it as a batch of `schema`.
/// Returns whether all null counts are known.
///
/// # Errors
///
/// Returns the errors of [`import_batch`].
pub fn check_batch_array(
    array: &Owned<abi::ArrowDeviceArray>,
    schema: &SchemaRef,
    memory: &Memory,
) -> Result<bool> {
    if is_plain(array, schema) {
        return Ok(true);
    }
    // The reader's buffers borrow `array`, and are dropped before this function returns.
    // SAFETY: `Owned` holds a valid array, which stays borrowed, and `borrowing` set no sizes.
    let batch = unsafe {
        let mut reader = Reader::borrowing(array)?;
        reader.batch(&Root::of(array), schema, memory)
    }?;
    Ok(batch.columns().iter().all(DeviceArray::has_null_counts))
}
