//! `Column`.

use std::sync::Arc;

use arrow_schema::FieldRef;
use crossdock::Table as HostTable;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow_out::{Exported, refuse_unknown};
use crate::errors::OrRaise;
use crate::schema::Field;
use crate::session::Shared;
use crate::table::{device_of, rows_of_slice};
use crate::work::detached;

/// One column of a table, on its device, in as many chunks as the table has batches.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Column {
    /// A table of this column alone.
    pub table: HostTable,
    pub shared: Arc<Shared>,
    field: FieldRef,
}

impl Column {
    /// The first column of a table that has one.
    pub fn new(table: HostTable, shared: Arc<Shared>) -> Self {
        let field = table.schema().fields().first().cloned();
        let field = field
            .unwrap_or_else(|| Arc::new(arrow_schema::Field::new("", arrow_schema::DataType::Null, true)));
        Self { table, shared, field }
    }

    fn exported(&self) -> Exported<'_> {
        Exported { table: &self.table, column: Some(self.field.clone()) }
    }

    fn with(&self, table: HostTable) -> Self {
        Self::new(table, self.shared.clone())
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
    fn device(&self) -> String {
        device_of(&self.table).to_string()
    }

    /// Bytes of its buffers, as far as lengths are known.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.table.bytes()
    }

    /// How many pieces it has.
    #[getter]
    fn num_chunks(&self) -> usize {
        self.table.batches().len()
    }

    /// How many values are null; counted on its device where nobody has told.
    #[getter]
    fn null_count(&self, py: Python<'_>) -> PyResult<usize> {
        let count = || -> crossdock_plugin_api::Result<usize> {
            let stream = self.table.session().stream();
            let arrays: Vec<_> = self.table.batches().iter().filter_map(|batch| batch.column(0)).collect();
            Ok(crossdock_arrays::count_nulls(&arrays, stream)?.into_iter().sum())
        };
        py.detach(count).or_raise()
    }

    fn __len__(&self) -> usize {
        self.table.rows() as usize
    }

    /// One piece, as a column.
    fn chunk(&self, index: usize) -> PyResult<Self> {
        let batches = self.table.batches();
        let batch = batches.get(index).cloned().ok_or_else(|| {
            PyIndexError::new_err(format!("chunk {index} of a column of {} chunks", batches.len()))
        })?;
        let (session, schema) = (self.table.session(), self.table.schema().clone());
        Ok(self.with(HostTable::from_batches(session, schema, vec![batch]).or_raise()?))
    }

    /// `length` values from `offset` on, fewer where it ends; nothing is copied.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: u64, length: Option<u64>) -> PyResult<Self> {
        Ok(self.with(rows_of_slice(&self.table, offset, length)?))
    }

    /// On another device: itself where it is there.
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<Self> {
        let device = crate::device::parse(device)?;
        Ok(self.with(detached(py, || self.table.move_to(device))?))
    }

    /// The same as a `pyarrow.ChunkedArray`, in host memory.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("chunked_array", (slf,))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.exported().schema(py)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        refuse_unknown("__arrow_c_device_array__", kwargs)?;
        self.exported().device_array(py, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.exported().array(py, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        refuse_unknown("__arrow_c_device_stream__", kwargs)?;
        self.exported().device_stream(py, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.exported().stream_of_arrays(py, requested_schema)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let rows = detached(py, || self.table.format(crate::table::SHOWN_ROWS))?;
        let (device, len) = (device_of(&self.table), self.table.rows());
        Ok(format!("crossdock.Column: {} on {device}, {len} values\n{rows}", self.field.data_type()))
    }
}
