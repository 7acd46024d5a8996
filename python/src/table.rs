//! `Table`.

use std::sync::Arc;

use arrow_schema::DataType;
use crossdock::Table as HostTable;
use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::Device;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow_out::{Exported, as_one_array, refuse_unknown};
use crate::column::Column;
use crate::errors::{OrRaise, Undisturbed};
use crate::path::FsPath;
use crate::process::{Own, begin};
use crate::schema::{Schema, index_of};
use crate::session::Shared;
use crate::work::{detached, reading};

/// Columns of one length, on a device. Tables do not change; slices and selections share their buffers.
#[pyclass(frozen, weakref, mapping, module = "crossdock")]
pub struct Table(Undisturbed<Own<Held>>);

/// A table, and what it shares with others of its session.
pub struct Held {
    pub table: HostTable,
    pub shared: Arc<Shared>,
}

/// Where a table is: the session's device where nothing of it is anywhere.
pub fn device_of(table: &HostTable) -> Device {
    table.batches().first().map_or(table.session().device(), |batch| batch.device())
}

/// `length` rows from `offset` on, or all that follow.
pub fn rows_of_slice(table: &HostTable, offset: u64, length: Option<u64>) -> PyResult<HostTable> {
    table.slice(offset, length.unwrap_or(u64::MAX)).or_raise()
}

/// The rows of all batches as one batch, where it is, with offset 0.
pub fn combined(py: Python<'_>, table: &HostTable) -> PyResult<HostTable> {
    if table.batches().len() < 2 {
        return compacted(py, table);
    }
    let session = table.session();
    // A table that was put together of others' batches may lie in several places.
    let there = detached(py, || table.move_to(device_of(table)))?;
    let one = reading(py, || {
        // Of batches of which one alone has rows it is that one.
        DeviceBatch::concatenate(there.batches(), session.stream())?.without_offsets(session.stream())
    })?;
    HostTable::from_batches(session, table.schema().clone(), vec![one.or_raise()?]).or_raise()
}

/// The same batches with offset 0, copied on their device where they have another.
pub fn compacted(py: Python<'_>, table: &HostTable) -> PyResult<HostTable> {
    let session = table.session();
    let batches = reading(py, || {
        let each = table.batches().iter().map(|batch| batch.without_offsets(session.stream()));
        each.collect::<crossdock_plugin_api::Result<Vec<_>>>()
    })?;
    HostTable::from_batches(session, table.schema().clone(), batches.or_raise()?).or_raise()
}

impl Table {
    pub fn new(table: HostTable, shared: Arc<Shared>) -> Self {
        Self(Undisturbed::new(Own::new(Held { table, shared })))
    }

    /// # Errors
    /// UsageError in a forked child.
    pub fn table(&self) -> PyResult<&HostTable> {
        Ok(&self.0.get()?.table)
    }

    fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(&self.0.get()?.shared)
    }

    /// Of the same session.
    ///
    /// # Errors
    /// UsageError in a forked child.
    pub fn with(&self, table: HostTable) -> PyResult<Self> {
        Ok(Self::new(table, self.shared()?.clone()))
    }

    fn exported(&self) -> PyResult<Exported<'_>> {
        Ok(Exported { table: self.table()?, column: None })
    }

    fn column_at(&self, index: usize) -> PyResult<Column> {
        Ok(Column::new(self.table()?.select(&[index]).or_raise()?, self.shared()?.clone()))
    }
}

#[pymethods]
impl Table {
    /// Names, types and metadata.
    #[getter]
    fn schema(&self) -> PyResult<Schema> {
        Ok(Schema(self.table()?.schema().clone()))
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> PyResult<Vec<&str>> {
        Ok(self.table()?.schema().fields().iter().map(|field| field.name().as_str()).collect())
    }

    /// How many rows.
    #[getter]
    fn num_rows(&self) -> PyResult<u64> {
        Ok(self.table()?.rows())
    }

    /// How many columns.
    #[getter]
    fn num_columns(&self) -> PyResult<usize> {
        Ok(self.table()?.schema().fields().len())
    }

    /// How many batches it is made of.
    #[getter]
    fn num_batches(&self) -> PyResult<usize> {
        Ok(self.table()?.batches().len())
    }

    /// Bytes of its buffers, as far as lengths are known. Buffers that a slice shares with the whole count whole.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.table()?.bytes())
    }

    /// Where it is.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device_of(self.table()?).to_string())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.table()?.rows() as usize)
    }

    /// The column of a name or an index.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Column> {
        self.column_at(index_of(self.table()?.schema(), key)?)
    }

    /// All columns, in order.
    #[getter]
    fn columns(&self) -> PyResult<Vec<Column>> {
        (0..self.num_columns()?).map(|i| self.column_at(i)).collect()
    }

    /// A table of these columns, by names or indices, in that order; nothing is copied.
    fn select(&self, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let table = self.table()?;
        let indices: Vec<_> =
            columns.iter().map(|key| index_of(table.schema(), key)).collect::<PyResult<_>>()?;
        self.with(table.select(&indices).or_raise()?)
    }

    /// `length` rows from `offset` on, fewer where the table ends; nothing is copied.
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: u64, length: Option<u64>) -> PyResult<Self> {
        self.with(rows_of_slice(self.table()?, offset, length)?)
    }

    /// The same rows with offset 0 in every array but run-end encoded ones: batches that are slices are copied on their device, others
    /// are themselves. Some libraries read slices wrongly (docs/peers.md).
    fn compact(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(compacted(py, self.table()?)?)
    }

    /// The same rows in one batch with offset 0, copied together; itself where there is such a one already.
    fn combine_batches(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(combined(py, self.table()?)?)
    }

    /// The table with these columns, by names or indices, as the values that their keys stand for, as `Column.decode_dictionary`;
    /// None: all that are dictionary-encoded.
    #[pyo3(signature = (columns=None))]
    fn decode_dictionary(&self, py: Python<'_>, columns: Option<Vec<Bound<'_, PyAny>>>) -> PyResult<Self> {
        let table = self.table()?;
        let indices: Vec<_> = match columns {
            Some(columns) => {
                columns.iter().map(|key| index_of(table.schema(), key)).collect::<PyResult<_>>()?
            }
            None => {
                let fields = table.schema().fields().iter().enumerate();
                let encoded =
                    fields.filter(|(_, field)| matches!(field.data_type(), DataType::Dictionary(..)));
                encoded.map(|(i, _)| i).collect()
            }
        };
        self.with(detached(py, || table.decode_dictionaries(&indices))?)
    }

    /// Its batches, each as a table.
    fn batches(&self) -> PyResult<Vec<Self>> {
        let table = self.table()?;
        let one = |batch: &crossdock_arrays::DeviceBatch| {
            let (session, schema) = (table.session(), table.schema().clone());
            self.with(HostTable::from_batches(session, schema, vec![batch.clone()]).or_raise()?)
        };
        table.batches().iter().map(one).collect()
    }

    /// On another device: itself where it is there.
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<Self> {
        let device = crate::device::parse(device)?;
        let table = self.table()?;
        self.with(detached(py, || table.move_to(device))?)
    }

    /// What would happen to each column if the format `to` took the table from where it is: a list of dicts with `name`,
    /// `verdict` ("zero-copy", "converted", "copied", "unsupported"), `device` and `reason`.
    #[pyo3(signature = (to, **options))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        to: &str,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let options = crate::files::options(options.as_ref())?;
        let Held { table, shared } = self.0.get()?;
        let from = device_of(table);
        let plan = detached(py, || shared.session.plan_columns(to, table.schema(), from, &options))?;
        let row = |column: crossdock_plugin_api::ColumnPlan| {
            let dict = PyDict::new(py);
            dict.set_item("name", column.name)?;
            dict.set_item("verdict", column.verdict.to_string())?;
            dict.set_item("device", column.to.to_string())?;
            dict.set_item("reason", column.reason)?;
            Ok(dict)
        };
        plan.into_iter().map(row).collect()
    }

    /// Writes Arrow IPC: a file to a path or a file object; a stream where `form="stream"` or the path ends in `.arrows`.
    /// compression: None, "lz4" or "zstd". progress: True shows a bar where stderr is a terminal; or a function of bytes
    /// done and bytes in all.
    #[pyo3(signature = (to, *, compression=None, form=None, progress=None))]
    fn write_ipc(
        &self,
        to: &Bound<'_, PyAny>,
        compression: Option<&str>,
        form: Option<&str>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        crate::files::write_ipc(self.table()?, self.shared()?, to, compression, form, progress)
    }

    /// Writes a file of the format that its ending says, or `format`. It appears whole or not at all.
    #[pyo3(signature = (path, format=None, *, progress=None, **options))]
    fn write(
        &self,
        py: Python<'_>,
        path: FsPath,
        format: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let options = crate::files::options(options.as_ref())?;
        crate::files::write(py, self.table()?, self.shared()?, path.0, format, progress, options)
    }

    /// The same as a `pyarrow.Table`, in host memory.
    fn to_pyarrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
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

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        crate::show::table(py, self.table()?)
    }

    /// What notebooks show.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        crate::show::html(py, self.table()?)
    }
}
