//! Exports tables and columns with Arrow's PyCapsule protocols.

use arrow_schema::FieldRef;
use crossdock::Table as HostTable;
use crossdock_arrays::{
    ArrayQueue, DeviceBatch, StreamSchema, check_last_offsets, export_batch_to_external, export_device_array,
    export_field, export_schema, field_type_name, import_field,
};
use crossdock_memory::Stream;
use crossdock_plugin_api::{CapsuleObject, Device, Owned, Result, abi};
use pyo3::exceptions::{PyAttributeError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::arrow::capsules::{new_capsule, take};
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::work::reading;

/// The object to export: a table, or a column as a table of one column.
pub struct Exported<'a> {
    pub table: &'a HostTable,
    /// The field if a column is exported.
    pub column: Option<FieldRef>,
}

/// Rejects an unknown keyword argument unless its value is None. The protocol requires this, so
/// that later versions can add arguments.
///
/// # Errors
/// NotImplementedError that names the argument.
pub fn refuse_unknown(protocol: &str, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in kwargs.into_iter().flatten() {
        if !value.is_none() {
            return Err(PyNotImplementedError::new_err(format!(
                "{protocol}: the argument {name}={value} is not supported: omit it, or pass None"
            )));
        }
    }
    Ok(())
}

/// Returns the method that exports `object` as one array. An object of several batches has no such
/// attribute. Otherwise consumers, which use the first protocol that they find, would not try the
/// stream protocol.
///
/// # Errors
/// AttributeError if the table has several batches.
pub fn as_one_array<'py, T>(
    object: &Bound<'py, T>,
    table: &HostTable,
    method: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    match table.batches().len() {
        0 | 1 => object.as_any().getattr(method),
        n => Err(PyAttributeError::new_err(format!(
            "expected one chunk, got {n}: use __arrow_c_stream__ or __arrow_c_device_stream__, or first call \
             combine_batches() on a table or combine_chunks() on a column"
        ))),
    }
}

/// Returns a stream on the batch's device for the work of an export: `stream` if possible.
fn stream_for(batch: &DeviceBatch, stream: &Stream) -> Result<Stream> {
    if batch.device() == stream.device() {
        return Ok(stream.clone());
    }
    stream.memory().default_stream(batch.device())
}

/// Exports a batch as a struct array, without a schema. `stream` is the session's stream.
pub fn export_rows(batch: &DeviceBatch, stream: &Stream) -> Result<Owned<abi::ArrowDeviceArray>> {
    let stream = stream_for(batch, stream)?;
    let raw = export_batch_to_external(batch, false, &stream)?;
    check_last_offsets(&raw, batch.schema(), stream.memory())?;
    let raw = raw.into_raw();
    // SAFETY: `into_raw` passed ownership of the batch. It was exported without a schema, so it
    // owns only the array.
    Ok(unsafe { Owned::new(raw.array) })
}

impl Exported<'_> {
    /// Implements `__arrow_c_schema__`.
    pub fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_capsule(py, self.raw_schema().or_raise()?)
    }

    fn raw_schema(&self) -> Result<Owned<abi::ArrowSchema>> {
        match &self.column {
            Some(field) => export_field(field),
            None => export_schema(self.table.schema()),
        }
    }

    /// Checks a requested schema. Arrow's protocol does not require the producer to cast the data.
    /// A nested schema for a type that is not nested, or the reverse, is rejected. Otherwise the
    /// data is exported unchanged.
    fn check_requested(&self, requested: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(requested) = requested else { return Ok(()) };
        // The protocol allows the producer to move the schema out of the caller's capsule.
        let requested = import_field(&take::<abi::ArrowSchema>(requested, "requested_schema")?).or_raise()?;
        let actual = import_field(&self.raw_schema().or_raise()?).or_raise()?;
        if requested.data_type().is_nested() != actual.data_type().is_nested() {
            let (requested, actual) = (field_type_name(&requested), field_type_name(&actual));
            return Err(usage(format!(
                "requested_schema: cannot export {actual} as {requested}: cast it before the export or afterwards"
            )));
        }
        Ok(())
    }

    /// Implements `__arrow_c_device_array__`, on the table's device.
    pub fn device_array<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.check_requested(requested)?;
        let batch = self.only_batch()?;
        let array = reading(py, || self.raw_device_array(&batch))?.or_raise()?;
        self.pair(py, array)
    }

    /// Implements `__arrow_c_array__`. Copies the data to host memory if it is on a device.
    pub fn array<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.check_requested(requested)?;
        let batch = self.only_batch()?;
        let array = reading(py, || -> Result<abi::ArrowArray> {
            let stream = self.stream(&batch)?;
            let batch = batch.move_to(&stream, Device::CPU)?;
            // The protocol for host memory has no event, so the data must be ready when this
            // function returns.
            stream.synchronize()?;
            Ok(self.raw_device_array(&batch)?.into_raw().array)
        })?;
        // SAFETY: `Owned::new` requires an array without another owner. `into_raw` passed the
        // ownership to this function. The data is ready, because the stream was synchronised.
        let array = unsafe { Owned::new(array.or_raise()?) };
        self.pair(py, array)
    }

    /// Implements `__arrow_c_device_stream__`.
    pub fn device_stream<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_requested(requested)?;
        let queue = reading(py, || self.queue(self.table.batches()))?.or_raise()?;
        let device = self.table.batches().first().map_or(self.table.session().device(), DeviceBatch::device);
        new_capsule(py, queue.into_device_stream(self.stream_schema(), device))
    }

    /// Implements `__arrow_c_stream__`. Copies the data to host memory if it is on a device.
    pub fn stream_of_arrays<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_requested(requested)?;
        let queue = reading(py, || -> Result<ArrayQueue> {
            let batches = self.table.batches();
            let streams = batches.iter().map(|batch| self.stream(batch)).collect::<Result<Vec<_>>>()?;
            let moved =
                batches.iter().zip(&streams).map(|(batch, stream)| batch.move_to(stream, Device::CPU));
            let moved = moved.collect::<Result<Vec<_>>>()?;
            // Waits only after all copies are submitted, so that the copies overlap.
            streams.iter().try_for_each(Stream::synchronize)?;
            self.queue(&moved)
        })?;
        new_capsule(py, queue.or_raise()?.into_data_stream(self.stream_schema()))
    }

    /// Returns the pair (schema, array) of the array protocols.
    fn pair<'py, T: CapsuleObject>(&self, py: Python<'py>, array: Owned<T>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.schema(py)?, new_capsule(py, array)?])
    }

    /// Returns the schema of a stream's arrays.
    fn stream_schema(&self) -> StreamSchema {
        match &self.column {
            Some(field) => field.clone().into(),
            None => self.table.schema().clone().into(),
        }
    }

    fn queue(&self, batches: &[DeviceBatch]) -> Result<ArrayQueue> {
        let mut queue = ArrayQueue::default();
        batches.iter().try_for_each(|batch| queue.push(self.raw_device_array(batch)?))?;
        Ok(queue)
    }

    fn raw_device_array(&self, batch: &DeviceBatch) -> Result<Owned<abi::ArrowDeviceArray>> {
        if let (Some(_), Some(column)) = (&self.column, batch.column(0)) {
            return export_device_array(column, &self.stream(batch)?);
        }
        export_rows(batch, self.table.session().stream())
    }

    /// Returns a stream on the batch's device for the work of an export.
    fn stream(&self, batch: &DeviceBatch) -> Result<Stream> {
        stream_for(batch, self.table.session().stream())
    }

    fn only_batch(&self) -> PyResult<DeviceBatch> {
        match self.table.batches() {
            [batch] => Ok(batch.clone()),
            [] => self.table.empty_batch().or_raise(),
            batches => Err(usage(format!("expected one chunk, got {}", batches.len()))),
        }
    }
}
