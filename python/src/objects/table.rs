//! `Table`: columns of equal length on a device.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock::{Parts, PendingTable, Table as HostTable};
use crossdock_plugin_api::Device;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PySlice, PyTuple};

use crate::arrow::export::{Exported, as_one_array, refuse_unknown};
use crate::objects::column::Column;
use crate::objects::compute;
use crate::objects::parts;
use crate::objects::schema::{Schema, dictionaries, index_of};
use crate::objects::session::Shared;
use crate::objects::shared::{self, SharedTable};
use crate::objects::table_rows::{self, combined, compacted, device_of, rows_of_slice};
use crate::runtime::errors::{KeepException, OrRaise};
use crate::runtime::path::FsPath;
use crate::runtime::process::{ProcessLocal, begin};
use crate::runtime::work::detached;

/// Columns of equal length on a device. Tables are immutable; slices and selections share their
/// buffers.
///
/// >>> table["score"].to_pylist()
/// [0.5, 1.5, 2.5]
#[pyclass(frozen, weakref, mapping, module = "crossdock")]
pub struct Table(KeepException<ProcessLocal<TableState>>);

struct TableState {
    rows: Rows,
    shared: Arc<Shared>,
}

enum Rows {
    Known(HostTable),
    /// The number of rows is on the device until it is first needed.
    Pending(PendingTable),
}

impl Table {
    pub fn new(table: HostTable, shared: Arc<Shared>) -> Self {
        Self::of(Rows::Known(table), shared)
    }

    /// A table whose number of rows is on the device.
    pub fn pending(table: PendingTable, shared: Arc<Shared>) -> Self {
        Self::of(Rows::Pending(table), shared)
    }

    fn of(rows: Rows, shared: Arc<Shared>) -> Self {
        Self(KeepException::new(ProcessLocal::new(TableState { rows, shared })))
    }

    /// Returns the table. Reads its number of rows if the number is on the device.
    ///
    /// # Errors
    /// UsageError in a forked child; DataError if the number of rows is invalid.
    pub fn table(&self) -> PyResult<&HostTable> {
        match &self.0.get()?.rows {
            Rows::Known(table) => Ok(table),
            Rows::Pending(pending) if pending.known_rows().is_some() => pending.table().or_raise(),
            Rows::Pending(pending) => Python::attach(|py| detached(py, || pending.table())),
        }
    }

    /// Returns the schema, without reading the number of rows.
    pub fn host_schema(&self) -> PyResult<&SchemaRef> {
        Ok(match &self.0.get()?.rows {
            Rows::Known(table) => table.schema(),
            Rows::Pending(pending) => pending.schema(),
        })
    }

    /// Replaces the schema by a schema with the same types.
    pub fn with_schema(&self, schema: &SchemaRef) -> PyResult<Self> {
        match &self.0.get()?.rows {
            Rows::Known(table) => self.with(table.with_schema(schema).or_raise()?),
            Rows::Pending(pending) => self.with_pending(pending.with_schema(schema).or_raise()?),
        }
    }

    fn host_device(&self) -> PyResult<Device> {
        Ok(match &self.0.get()?.rows {
            Rows::Known(table) => device_of(table),
            Rows::Pending(pending) => pending.device(),
        })
    }

    fn with_pending(&self, table: PendingTable) -> PyResult<Self> {
        Ok(Self::pending(table, self.shared()?.clone()))
    }

    pub fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(&self.0.get()?.shared)
    }

    /// Wraps another table of the same session.
    ///
    /// # Errors
    /// UsageError in a forked child.
    pub fn with(&self, table: HostTable) -> PyResult<Self> {
        Ok(Self::new(table, self.shared()?.clone()))
    }

    fn exported(&self) -> PyResult<Exported<'_>> {
        Ok(Exported { table: self.table()?, column: None })
    }

    fn parts(&self, py: Python<'_>) -> PyResult<Parts> {
        let table = self.table()?;
        detached(py, || table.to_parts())
    }

    fn column_at(&self, index: usize) -> PyResult<Column> {
        Ok(Column::new(self.table()?.select(&[index]).or_raise()?, self.shared()?.clone()))
    }
}

#[pymethods]
impl Table {
    /// Names, types and metadata of the columns.
    ///
    /// >>> table.schema["name"].type
    /// 'string'
    #[getter]
    fn schema(&self) -> PyResult<Schema> {
        Ok(Schema(self.host_schema()?.clone()))
    }

    /// Names of the columns.
    ///
    /// >>> table.column_names
    /// ['id', 'name', 'score']
    #[getter]
    fn column_names(&self) -> PyResult<Vec<&str>> {
        Ok(self.host_schema()?.fields().iter().map(|field| field.name().as_str()).collect())
    }

    /// Number of rows. If it is on the device (`from_dlpack(num_rows=)`), the first use waits for
    /// the device and reads it.
    ///
    /// >>> table.num_rows
    /// 3
    #[getter]
    fn num_rows(&self) -> PyResult<u64> {
        Ok(self.table()?.rows())
    }

    /// The number of rows that the columns have room for, if the number of rows is on the device;
    /// otherwise the number of rows. Does not wait for the device, as `schema`, `column_names`,
    /// `num_columns`, `num_batches`, `device`, `select` and `padded`.
    ///
    /// >>> counted = session.from_dlpack({"x": np.arange(8)}, num_rows=np.array([3]))
    /// >>> counted.capacity, counted.num_rows
    /// (8, 3)
    #[getter]
    fn capacity(&self) -> PyResult<u64> {
        Ok(match &self.0.get()?.rows {
            Rows::Known(table) => table.rows(),
            Rows::Pending(pending) => pending.capacity(),
        })
    }

    /// Returns a table of all `capacity` rows, without reading the number of rows. The contents of
    /// the rows behind that number are undefined. Use it for libraries with static shapes. If the
    /// number of rows is not on the device, returns the same rows.
    ///
    /// >>> counted = session.from_dlpack({"x": np.arange(8)}, num_rows=np.array([3]))
    /// >>> counted.padded().num_rows
    /// 8
    fn padded(&self) -> PyResult<Self> {
        match &self.0.get()?.rows {
            Rows::Known(table) => self.with(table.clone()),
            Rows::Pending(pending) => self.with(pending.padded().or_raise()?),
        }
    }

    /// Number of columns.
    ///
    /// >>> table.num_columns
    /// 3
    #[getter]
    fn num_columns(&self) -> PyResult<usize> {
        Ok(self.host_schema()?.fields().len())
    }

    /// Number of record batches.
    ///
    /// >>> cd.concat([table, table]).num_batches
    /// 2
    #[getter]
    fn num_batches(&self) -> PyResult<usize> {
        Ok(match &self.0.get()?.rows {
            Rows::Known(table) => table.batches().len(),
            Rows::Pending(_) => 1,
        })
    }

    /// Size of its buffers in bytes. A slice counts the whole buffers that it shares; buffers of
    /// unknown size are not counted.
    ///
    /// >>> table.select(["id"]).nbytes
    /// 24
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.table()?.bytes())
    }

    /// The device of the table.
    ///
    /// >>> table.device
    /// 'cpu'
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.host_device()?.to_string())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.table()?.rows() as usize)
    }

    /// The column with a name or an index; with a list of these, a table of these columns; with a
    /// slice, a table of these rows.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, table) = (slf.py(), slf.get());
        if let Ok(slice) = key.cast::<PySlice>() {
            let rows = compute::sliced(py, table.shared()?, table.table()?, slice)?;
            return table.with(rows)?.into_bound_py_any(py);
        }
        if let Ok(keys) = key.cast::<PyList>() {
            return table.select(keys.iter().collect())?.into_bound_py_any(py);
        }
        table.column_at(index_of(table.host_schema()?, key)?)?.into_bound_py_any(py)
    }

    /// The columns, in order.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyIterator>> {
        Ok(self.columns()?.into_bound_py_any(py)?.try_iter()?.unbind())
    }

    /// Returns the first `n` rows. Zero-copy.
    ///
    /// >>> table.head(2).num_rows
    /// 2
    #[pyo3(signature = (n=5))]
    fn head(&self, n: u64) -> PyResult<Self> {
        self.with(rows_of_slice(self.table()?, 0, Some(n))?)
    }

    /// Returns rows, on the table's device.
    ///
    /// condition: booleans, one for each row, of which a null selects no row: a column, an Arrow
    /// array, a tensor or a sequence. Or a list of comparisons (column, operator, value), as the
    /// argument `filter` of `Session.scan`.
    ///
    /// >>> table.filter([("score", ">", 1), ("id", "<", 3)])["id"].to_pylist()
    /// [2]
    fn filter(&self, py: Python<'_>, condition: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.with(compute::filtered(py, self.shared()?, self.table()?, condition)?)
    }

    /// Returns the rows at `indices`, in that order, on the table's device. The row of a null index
    /// is null. Several batches are combined first.
    ///
    /// indices: a column, an Arrow array, a tensor or a sequence of integers.
    ///
    /// >>> table.take([2, 0])["id"].to_pylist()
    /// [3, 1]
    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = self.table()?;
        let indices = compute::rows_argument(self.shared()?, indices, compute::Rows::Indices)?;
        self.with(detached(py, || table.take(&indices))?)
    }

    /// Converts columns to other types, as `Column.cast` does.
    ///
    /// types: a dict from names or indices of columns to types.
    ///
    /// >>> table.cast({"id": "int32"})["id"].type
    /// 'int32'
    #[pyo3(signature = (types, *, safe=true))]
    fn cast(&self, py: Python<'_>, types: &Bound<'_, PyDict>, safe: bool) -> PyResult<Self> {
        let mut table = self.table()?.clone();
        for (key, to) in types {
            let (index, to) = (index_of(table.schema(), &key)?, compute::data_type(&to)?);
            table = detached(py, || table.cast(index, &to, compute::mode(safe)))?;
        }
        self.with(table)
    }

    /// Replaces the nulls of columns, as `Column.fill_null` does.
    ///
    /// values: a dict from names or indices of columns to values of their types.
    ///
    /// >>> table.fill_null({"name": "?"})["name"].to_pylist()
    /// ['ann', '?', 'cy']
    fn fill_null(&self, py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut table = self.table()?.clone();
        for (key, value) in values {
            let (index, value) = (index_of(table.schema(), &key)?, compute::literal(&value)?);
            table = detached(py, || table.fill_null(index, &value))?;
        }
        self.with(table)
    }

    /// Returns a `pandas.DataFrame`. Needs pyarrow and pandas.
    ///
    /// options: arguments of `pyarrow.Table.to_pandas`.
    ///
    /// >>> table.to_pandas()["id"].tolist()
    /// [1, 2, 3]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method("to_pandas", (), options)
    }

    /// All columns, in order.
    ///
    /// >>> [column.type for column in table.columns]
    /// ['int64', 'string', 'double']
    #[getter]
    fn columns(&self) -> PyResult<Vec<Column>> {
        (0..self.num_columns()?).map(|i| self.column_at(i)).collect()
    }

    /// Selects columns by name or index, in the order of the arguments. Zero-copy.
    ///
    /// >>> table.select(["score", "id"]).column_names
    /// ['score', 'id']
    fn select(&self, columns: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let schema = self.host_schema()?;
        let indices: Vec<_> = columns.iter().map(|key| index_of(schema, key)).collect::<PyResult<_>>()?;
        match &self.0.get()?.rows {
            Rows::Known(table) => self.with(table.select(&indices).or_raise()?),
            Rows::Pending(pending) => self.with_pending(pending.select(&indices).or_raise()?),
        }
    }

    /// Returns at most `length` rows from `offset` on. Zero-copy.
    ///
    /// >>> table.slice(1, 1)["id"].to_pylist()
    /// [2]
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: u64, length: Option<u64>) -> PyResult<Self> {
        self.with(rows_of_slice(self.table()?, offset, length)?)
    }

    /// Returns the same rows with offset 0 in every array except run-end encoded arrays. Sliced
    /// batches are copied on their device. Use it for libraries that read slices incorrectly
    /// (docs/peers.md).
    ///
    /// >>> table.slice(1).compact()["id"].to_pylist()
    /// [2, 3]
    fn compact(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(compacted(py, self.table()?)?)
    }

    /// Returns the same rows as one batch with offset 0. Zero-copy if the table has one batch with
    /// offset 0.
    ///
    /// >>> cd.concat([table, table]).combine_batches().num_batches
    /// 1
    fn combine_batches(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(combined(py, self.table()?)?)
    }

    /// Replaces dictionary-encoded columns by their values, as `Column.decode_dictionary` does.
    ///
    /// columns: names or indices; None: all dictionary-encoded columns.
    ///
    /// >>> encoded = cd.table({"name": table["name"].dictionary_encode()})
    /// >>> encoded.decode_dictionary()["name"].type
    /// 'string'
    #[pyo3(signature = (columns=None))]
    fn decode_dictionary(&self, py: Python<'_>, columns: Option<Vec<Bound<'_, PyAny>>>) -> PyResult<Self> {
        let table = self.table()?;
        let indices: Vec<_> = match columns {
            Some(columns) => {
                columns.iter().map(|key| index_of(table.schema(), key)).collect::<PyResult<_>>()?
            }
            None => dictionaries(table.schema()),
        };
        self.with(detached(py, || table.decode_dictionaries(&indices))?)
    }

    /// Returns each record batch as a table.
    ///
    /// >>> [batch.num_rows for batch in cd.concat([table, table]).batches()]
    /// [3, 3]
    fn batches(&self) -> PyResult<Vec<Self>> {
        let table = self.table()?;
        let to_table = |batch: &crossdock_arrays::DeviceBatch| {
            let (session, schema) = (table.session(), table.schema().clone());
            self.with(HostTable::from_batches(session, schema, vec![batch.clone()]).or_raise()?)
        };
        table.batches().iter().map(to_table).collect()
    }

    /// Moves the table to a device. Zero-copy if the table is already on that device.
    ///
    /// >>> table.to("cpu").device
    /// 'cpu'
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<Self> {
        let device = crate::objects::device::parse(device)?;
        let table = self.table()?;
        self.with(detached(py, || table.move_to(device))?)
    }

    /// Plans an export to the format `to`, without running it. Returns a dict for each column with
    /// `name`, `verdict` ("zero-copy", "converted", "copied" or "unsupported"), `device` and
    /// `reason`.
    ///
    /// >>> for column in table.plan("dlpack"):
    /// ...     print(column["name"], column["verdict"])
    /// id zero-copy
    /// name unsupported
    /// score zero-copy
    #[pyo3(signature = (to, **options))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        to: &str,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = crate::objects::files::options(options.as_ref())?;
        table_rows::plan(py, &self.shared()?.session, to, self.host_schema()?, self.host_device()?, &options)
    }

    /// Writes the table as Arrow IPC to a path or a file object.
    ///
    /// compression: None, "lz4" or "zstd".
    /// form: "file" or "stream"; None: "stream" if the path ends in `.arrows`, else "file".
    /// progress: True shows a bar if stderr is a terminal; or a function (bytes_done, bytes_total).
    ///
    /// >>> table.write_ipc(folder / "small.arrow", compression="zstd")
    /// >>> session.read_ipc(folder / "small.arrow").num_rows
    /// 3
    #[pyo3(signature = (to, *, compression=None, form=None, progress=None))]
    fn write_ipc(
        &self,
        to: &Bound<'_, PyAny>,
        compression: Option<&str>,
        form: Option<&str>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        crate::objects::files::write_ipc(self.table()?, self.shared()?, to, compression, form, progress)
    }

    /// Writes the table to a file. The file appears complete or not at all.
    ///
    /// format: name of the format; None: chosen by the file extension.
    /// progress: as in `write_ipc`.
    /// options: options of the format.
    ///
    /// >>> table.write(folder / "copy.arrow")
    /// >>> session.read(folder / "copy.arrow").num_rows
    /// 3
    #[pyo3(signature = (path, format=None, *, progress=None, **options))]
    fn write(
        &self,
        py: Python<'_>,
        path: FsPath,
        format: Option<String>,
        progress: Option<&Bound<'_, PyAny>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let options = crate::objects::files::options(options.as_ref())?;
        crate::objects::files::write(py, self.table()?, self.shared()?, path.0, format, progress, options)
    }

    /// Takes the table apart: a header, and buffers with the buffer protocol, in host memory.
    /// `Session.from_parts` rebuilds it, also in another process. The buffers share its memory if
    /// it is in host memory and no slice.
    ///
    /// >>> header, buffers = table.to_parts()
    /// >>> session.from_parts(header, buffers).num_rows
    /// 3
    fn to_parts<'py>(&self, py: Python<'py>) -> PyResult<parts::HeaderAndBuffers<'py>> {
        parts::to_python(py, self.parts(py)?)
    }

    /// Shares the table with other processes of this user on this host. It is copied once on its
    /// device, and the call does not wait for a copy on a CUDA device.
    ///
    /// >>> with table.share() as shared:
    /// ...     session.open_shared(shared.description).num_rows
    /// 3
    fn share(&self, py: Python<'_>) -> PyResult<SharedTable> {
        SharedTable::new(py, self.table()?)
    }

    /// Shares the table with the first process that opens it. Returns the description.
    fn _share_once<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let table = self.table()?;
        Ok(PyBytes::new(py, &detached(py, || table.share_once())?))
    }

    /// Why other processes cannot open the table in memory of its device; None if they can.
    #[getter]
    fn _sharing_obstacle(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(shared::obstacle(py, self.table()?))
    }

    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: i32) -> PyResult<parts::Reduced<'py>> {
        parts::reduce(py, protocol, self.parts(py)?)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    // A copy would be equal, because tables are immutable.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns a `pyarrow.Table` in host memory.
    ///
    /// >>> table.to_pyarrow().column("id")[0]
    /// <pyarrow.Int64Scalar: 1>
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
        crate::objects::show::table(py, self.table()?)
    }

    /// HTML for notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        crate::objects::show::table_html(py, self.table()?)
    }
}
