//! Arrow's PyCapsule protocols, spoken by tables and columns.

use arrow_schema::FieldRef;
use crossdock::Table as HostTable;
use crossdock_arrays::{
    ArrayQueue, DeviceBatch, StreamSchema, check_ends, export_device_array, export_field, export_schema,
    import_field, lend_batch,
};
use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, Named, Owned, Result, abi};
use pyo3::exceptions::{PyAttributeError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::capsules::{give, take};
use crate::errors::{OrRaise, usage};
use crate::work::reading;

/// What is given: a table, or its only column by itself.
pub struct Exported<'a> {
    /// All of it, on its device.
    pub table: &'a HostTable,
    /// The column, where it is one.
    pub column: Option<FieldRef>,
}

/// Unknown arguments are for later versions of a protocol: they may be None.
pub fn refuse_unknown(protocol: &str, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    for (name, value) in kwargs.into_iter().flatten() {
        if !value.is_none() {
            return Err(PyNotImplementedError::new_err(format!(
                "{protocol}: the argument {name}={value} is unknown here: leave it out, or give None"
            )));
        }
    }
    Ok(())
}

/// The method of `of` that gives all of it as one array, under a protocol's name. It is not there where there are several
/// batches: libraries take the first protocol that they find, and would not look for a stream.
pub fn as_one_array<'py, T>(
    of: &Bound<'py, T>,
    table: &HostTable,
    method: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    match table.batches().len() {
        0 | 1 => of.as_any().getattr(method),
        n => Err(PyAttributeError::new_err(format!(
            "it is in {n} pieces, and an array is one: use __arrow_c_stream__ or __arrow_c_device_stream__, or copy the \
             pieces together first (a table's combine_batches(), a column's combine_chunks())"
        ))),
    }
}

impl Exported<'_> {
    /// `__arrow_c_schema__`.
    pub fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        give(py, self.raw_schema().or_raise()?)
    }

    fn raw_schema(&self) -> Result<Owned<abi::ArrowSchema>> {
        match &self.column {
            Some(field) => export_field(field),
            None => export_schema(self.table.schema()),
        }
    }

    /// A requested schema is a wish: of another kind it is refused, else what there is is given as it is.
    fn check_requested(&self, requested: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(requested) = requested else { return Ok(()) };
        // The capsule stays the caller's: what was moved out of it for a look is gone, as the protocol allows.
        let wanted = import_field(&take::<abi::ArrowSchema>(requested, "requested_schema")?).or_raise()?;
        let own = import_field(&self.raw_schema().or_raise()?).or_raise()?;
        let (wanted, own) = (wanted.data_type(), own.data_type());
        if wanted.is_nested() != own.is_nested() {
            return Err(usage(format!(
                "requested_schema: {wanted} cannot be had from {own}; cast it before or afterwards"
            )));
        }
        Ok(())
    }

    /// `__arrow_c_device_array__`: where it is.
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

    /// `__arrow_c_array__`: in host memory, copied there if it is not.
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
            // Readers of host memory know no events.
            stream.synchronize()?;
            Ok(self.raw_device_array(&batch)?.into_raw().array)
        })?;
        // SAFETY: what an exported device array holds is complete in itself; on the CPU nothing has to be waited for.
        let array = unsafe { Owned::new(array.or_raise()?) };
        self.pair(py, array)
    }

    /// `__arrow_c_device_stream__`.
    pub fn device_stream<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_requested(requested)?;
        let queue = reading(py, || self.queue(self.table.batches()))?.or_raise()?;
        let declared =
            self.table.batches().first().map_or(self.table.session().device(), DeviceBatch::device);
        give(py, queue.into_device_stream(self.stream_schema(), declared))
    }

    /// `__arrow_c_stream__`: in host memory.
    pub fn stream_of_arrays<'py>(
        &self,
        py: Python<'py>,
        requested: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_requested(requested)?;
        let queue = reading(py, || -> Result<ArrayQueue> {
            let batches = self.table.batches();
            let streams = batches.iter().map(|batch| self.stream(batch)).collect::<Result<Vec<_>>>()?;
            let moved = batches.iter().zip(&streams).map(|(batch, on)| batch.move_to(on, Device::CPU));
            let moved = moved.collect::<Result<Vec<_>>>()?;
            // Once all of them are on their way.
            streams.iter().try_for_each(Stream::synchronize)?;
            self.queue(&moved)
        })?;
        give(py, queue.or_raise()?.into_data_stream(self.stream_schema()))
    }

    /// What both array protocols give.
    fn pair<'py, T: Named>(&self, py: Python<'py>, array: Owned<T>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.schema(py)?, give(py, array)?])
    }

    /// What the arrays of a stream are.
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
        let stream = self.stream(batch)?;
        if let (Some(_), Some(column)) = (&self.column, batch.column(0)) {
            return export_device_array(column, &stream);
        }
        let raw = lend_batch(batch, false, &stream)?;
        check_ends(&raw, self.table.schema(), stream.memory())?;
        let raw = raw.into_raw();
        // SAFETY: the batch was the `Owned` one's; without a schema, the array is all that it owned.
        Ok(unsafe { Owned::new(raw.array) })
    }

    /// The stream on which to find out what an export needs.
    fn stream(&self, batch: &DeviceBatch) -> Result<Stream> {
        let own = self.table.session().stream();
        if batch.device() == own.device() {
            return Ok(own.clone());
        }
        own.memory().default_stream(batch.device())
    }

    fn only_batch(&self) -> PyResult<DeviceBatch> {
        match self.table.batches() {
            [batch] => Ok(batch.clone()),
            [] => self.table.empty_batch().or_raise(),
            batches => Err(usage(format!("it is in {} pieces, and an array is one", batches.len()))),
        }
    }
}
