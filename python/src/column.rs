//! `Column`.

use std::ffi::c_int;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use crossdock::{Error, Table as HostTable};
use crossdock_arrays::DeviceBatch;
use pyo3::exceptions::PyIndexError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow_out::{Exported, as_one_array, refuse_unknown};
use crate::buffer_protocol;
use crate::column_held::Held;
use crate::cuda_array_interface;
use crate::dlpack_in_place::InPlace;
use crate::dlpack_out;
use crate::dlpack_tensor::number_of;
use crate::errors::{OrRaise, Undisturbed};
use crate::exchange_api_own;
use crate::process::{Own, begin};
use crate::schema::Field;
use crate::session::Shared;
use crate::table::{combined, compacted, device_of, rows_of_slice};
use crate::vortex_out;
use crate::work::{detached, reading};

/// One column of a table, on its device, in as many chunks as the table has batches.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Column {
    held: Undisturbed<Own<Held>>,
    field: FieldRef,
}

impl Column {
    /// The first column of a table that has one.
    pub fn new(table: HostTable, shared: Arc<Shared>) -> Self {
        let field = table.schema().fields().first().cloned();
        Self::of(field, Held::of_table(table, shared))
    }

    /// A tensor as it lies.
    pub fn of_tensor(tensor: InPlace, shared: Arc<Shared>) -> Self {
        let field = tensor.field().cloned();
        Self::of(field, Held::of_tensor(tensor, shared))
    }

    fn of(field: Option<FieldRef>, held: Held) -> Self {
        let field = field
            .unwrap_or_else(|| Arc::new(arrow_schema::Field::new("", arrow_schema::DataType::Null, true)));
        Self { held: Undisturbed::new(Own::new(held)), field }
    }

    /// A table of this column alone.
    ///
    /// # Errors
    /// UsageError in a forked child.
    pub fn table(&self) -> PyResult<&HostTable> {
        self.held.get()?.table()
    }

    /// What it shares with others of its session.
    pub fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(&self.held.get()?.shared)
    }

    /// What is kept for giving it as a tensor.
    pub fn lent(&self) -> PyResult<&dlpack_out::Lent> {
        Ok(&self.held.get()?.lent)
    }

    fn exported(&self) -> PyResult<Exported<'_>> {
        Ok(Exported { table: self.table()?, column: Some(self.field.clone()) })
    }

    fn with(&self, table: HostTable) -> PyResult<Self> {
        Ok(Self::new(table, self.shared()?.clone()))
    }
}

#[pymethods]
impl Column {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.field.name()
    }

    /// Its Arrow type, in words.
    #[getter]
    fn r#type(&self) -> String {
        self.field.data_type().to_string()
    }

    /// Name, type, nullability and metadata.
    #[getter]
    fn field(&self) -> Field {
        Field(self.field.clone())
    }

    /// Where it is.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device_of(self.table()?).to_string())
    }

    /// Bytes of its buffers, as far as lengths are known.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.table()?.bytes())
    }

    /// How many pieces it has.
    #[getter]
    fn num_chunks(&self) -> PyResult<usize> {
        Ok(self.table()?.batches().len())
    }

    /// How many values are null; counted on its device where nobody has told.
    #[getter]
    fn null_count(&self, py: Python<'_>) -> PyResult<usize> {
        let table = self.table()?;
        let count = || -> crossdock_plugin_api::Result<usize> {
            let stream = table.session().stream();
            let arrays: Vec<_> = table.batches().iter().filter_map(|batch| batch.column(0)).collect();
            Ok(crossdock_arrays::count_nulls(&arrays, stream)?.into_iter().sum())
        };
        reading(py, count)?.or_raise()
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.table()?.rows() as usize)
    }

    /// One piece, as a column.
    fn chunk(&self, index: usize) -> PyResult<Self> {
        let table = self.table()?;
        let batches = table.batches();
        let batch = batches.get(index).cloned().ok_or_else(|| {
            PyIndexError::new_err(format!("chunk {index} of a column of {} chunks", batches.len()))
        })?;
        let (session, schema) = (table.session(), table.schema().clone());
        self.with(HostTable::from_batches(session, schema, vec![batch]).or_raise()?)
    }

    /// The same values with offset 0 in every array but run-end encoded ones, as `Table.compact`.
    fn compact(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(compacted(py, self.table()?)?)
    }

    /// The same values in one piece with offset 0, copied together; itself where it is such a one already.
    fn combine_chunks(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(combined(py, self.table()?)?)
    }

    /// The values that its keys stand for, where it is; a UsageError where it is not dictionary-encoded. Values that are
    /// dictionary-encoded themselves stay so.
    fn decode_dictionary(&self, py: Python<'_>) -> PyResult<Self> {
        let table = self.table()?;
        self.with(detached(py, || table.decode_dictionaries(&[0]))?)
    }

    /// `length` values from `offset` on, fewer where it ends; nothing is copied.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: u64, length: Option<u64>) -> PyResult<Self> {
        self.with(rows_of_slice(self.table()?, offset, length)?)
    }

    /// On another device: itself where it is there.
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<Self> {
        let device = crate::device::parse(device)?;
        let table = self.table()?;
        self.with(detached(py, || table.move_to(device))?)
    }

    /// The same as a `pyarrow.ChunkedArray`, in host memory.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("pyarrow")?.call_method1("chunked_array", (slf,))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.exported()?.schema(py)
    }

    #[getter]
    fn __arrow_c_device_array__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        as_one_array(slf, slf.get().table()?, intern!(slf.py(), "_arrow_c_device_array"))
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn _arrow_c_device_array<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown("__arrow_c_device_array__", kwargs)?;
        self.exported()?.device_array(py, requested_schema)
    }

    #[getter]
    fn __arrow_c_array__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        as_one_array(slf, slf.get().table()?, intern!(slf.py(), "_arrow_c_array"))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn _arrow_c_array<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.exported()?.array(py, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        refuse_unknown("__arrow_c_device_stream__", kwargs)?;
        self.exported()?.device_stream(py, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.exported()?.stream_of_arrays(py, requested_schema)
    }

    /// The column as Vortex's protocol has it: nested tuples of (id, dtype, length, metadata, buffers, children), of nodes that
    /// hold values as they are. What it gave is good for one consumer; each call gives new capsules of the same buffers.
    fn __vortex_array_metadata__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let table = self.table()?;
        let tree = detached(py, || {
            let session = table.session();
            let field = self.field.as_ref().clone().with_name("");
            let schema = Arc::new(Schema::new(vec![field]));
            let unnamed = |batch: &DeviceBatch| batch.clone().with_schema(schema.clone());
            let batches =
                table.batches().iter().map(unnamed).collect::<crossdock_plugin_api::Result<Vec<_>>>();
            let batches = batches
                .map_err(|error| Error::Data { what: "cannot give a column".into(), source: error })?;
            session.encode_as_it_is(&schema, &batches)
        })?;
        vortex_out::tuples(py, tree)
    }

    /// The column as a DLPack tensor, as the array API standard has it. Its memory is lent to be read only, which consumers
    /// that give no max_version cannot be told: they get a copy, and so does who asks for one with copy=True. copy=False:
    /// lent, or BufferError.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack_out::dlpack(py, self, stream, max_version, dl_device, copy)
    }

    /// The same without a Python call: the table of functions of DLPack's C exchange API.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange_api_own::capsule(py)
    }

    /// DLPack's number of the kind of device that it lies on, and the device's own.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        number_of(device_of(self.table()?))
    }

    /// The column for numba, cupy and others, as version 3 of the interface has it: on CUDA devices, to be read only.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        cuda_array_interface::of_column(py, self)
    }

    /// # Safety
    /// Called by Python, with a view to fill in.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python's own view.
        unsafe { buffer_protocol::get(slf, view, flags) }
    }

    /// # Safety
    /// Called by Python, with a view that was filled in.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python releases a view once.
        unsafe { buffer_protocol::release(view) }
    }

    /// numpy's view of it, to be read only; a copy where `copy=True`, or where another dtype is asked for.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        buffer_protocol::array(slf, dtype, copy)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        crate::show::column(py, self.name(), &self.r#type(), self.table()?)
    }
}
