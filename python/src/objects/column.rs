//! `Column`: a column of a table, or a tensor.

use std::ffi::c_int;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema};
use crossdock::{Error, Parts, Table as HostTable};
use crossdock_arrays::DeviceBatch;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyIndexError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyTuple};

use crate::arrow::export::{Exported, as_one_array, refuse_unknown};
use crate::cuda;
use crate::dlpack;
use crate::dlpack::buffer_protocol;
use crate::dlpack::exchange_functions;
use crate::dlpack::import_in_place::InPlace;
use crate::dlpack::tensor::number_of;
use crate::objects::column_state::ColumnState;
use crate::objects::compute;
use crate::objects::encoded::EncodedArray;
use crate::objects::parts;
use crate::objects::schema::Field;
use crate::objects::session::Shared;
use crate::objects::shared;
use crate::objects::table_rows::{combined, compacted, device_of, rows_of_slice};
use crate::runtime::errors::{KeepException, OrRaise};
use crate::runtime::process::{ProcessLocal, begin};
use crate::runtime::work::{detached, reading};
use crate::vortex;

/// A column of a table on a device. It has one chunk per record batch of the table.
///
/// >>> table["id"].to_pylist()
/// [1, 2, 3]
/// >>> table["id"][-1], table["name"][1]
/// (3, None)
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Column {
    state: KeepException<ProcessLocal<ColumnState>>,
    field: FieldRef,
}

impl Column {
    /// Creates a column from a table of one column.
    pub fn new(table: HostTable, shared: Arc<Shared>) -> Self {
        let field = table.schema().fields().first().cloned();
        Self::from_state(field, ColumnState::from_table(table, shared))
    }

    /// Creates a column from a tensor that is used in place.
    pub fn from_tensor(tensor: InPlace, shared: Arc<Shared>) -> Self {
        let field = tensor.field().cloned();
        Self::from_state(field, ColumnState::from_tensor(tensor, shared))
    }

    fn from_state(field: Option<FieldRef>, state: ColumnState) -> Self {
        let field = field
            .unwrap_or_else(|| Arc::new(arrow_schema::Field::new("", arrow_schema::DataType::Null, true)));
        Self { state: KeepException::new(ProcessLocal::new(state)), field }
    }

    /// Returns the table of this one column.
    ///
    /// # Errors
    /// UsageError in a forked child.
    pub fn table(&self) -> PyResult<&HostTable> {
        self.state.get()?.table()
    }

    /// Returns the session's state.
    pub fn shared(&self) -> PyResult<&Arc<Shared>> {
        Ok(&self.state.get()?.shared)
    }

    /// Returns the cache of exported tensors.
    pub fn tensor_cache(&self) -> PyResult<&dlpack::export::TensorCache> {
        Ok(&self.state.get()?.tensor_cache)
    }

    fn exported(&self) -> PyResult<Exported<'_>> {
        Ok(Exported { table: self.table()?, column: Some(self.field.clone()) })
    }

    fn parts(&self, py: Python<'_>) -> PyResult<Parts> {
        let table = self.table()?;
        detached(py, || Parts::of_column(table))
    }

    fn with(&self, table: HostTable) -> PyResult<Self> {
        Ok(Self::new(table, self.shared()?.clone()))
    }
}

#[pymethods]
impl Column {
    /// Name of the column.
    ///
    /// >>> table["id"].name
    /// 'id'
    #[getter]
    fn name(&self) -> &str {
        self.field.name()
    }

    /// Arrow type as text, as pyarrow prints it.
    ///
    /// >>> table["score"].type
    /// 'double'
    #[getter]
    fn r#type(&self) -> String {
        crossdock_arrays::field_type_name(&self.field)
    }

    /// Name, type, nullability and metadata.
    ///
    /// >>> table["id"].field
    /// id: int64
    #[getter]
    fn field(&self) -> Field {
        Field(self.field.clone())
    }

    /// Device of the column.
    ///
    /// >>> table["id"].device
    /// 'cpu'
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device_of(self.table()?).to_string())
    }

    /// Size of its buffers in bytes. Buffers of unknown size are not counted.
    ///
    /// >>> table["id"].nbytes
    /// 24
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.table()?.bytes())
    }

    /// Number of chunks.
    ///
    /// >>> cd.concat([table, table])["id"].num_chunks
    /// 2
    #[getter]
    fn num_chunks(&self) -> PyResult<usize> {
        Ok(self.table()?.batches().len())
    }

    /// Number of null values. It is counted on the device if the producer did not state it.
    ///
    /// >>> table["name"].null_count
    /// 1
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

    /// Returns one chunk as a column.
    ///
    /// >>> cd.concat([table, table])["id"].chunk(1).to_pylist()
    /// [1, 2, 3]
    fn chunk(&self, index: usize) -> PyResult<Self> {
        let table = self.table()?;
        let batches = table.batches();
        let batch = batches.get(index).cloned().ok_or_else(|| {
            PyIndexError::new_err(format!("chunk {index} of a column of {} chunks", batches.len()))
        })?;
        let (session, schema) = (table.session(), table.schema().clone());
        self.with(HostTable::from_batches(session, schema, vec![batch]).or_raise()?)
    }

    /// Returns the same values with offset 0, as `Table.compact` does.
    ///
    /// >>> table["id"].slice(1).compact().to_pylist()
    /// [2, 3]
    fn compact(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(compacted(py, self.table()?)?)
    }

    /// Returns the same values as one chunk with offset 0. Zero-copy if the column has one chunk
    /// with offset 0.
    ///
    /// >>> cd.concat([table, table])["id"].combine_chunks().num_chunks
    /// 1
    fn combine_chunks(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(combined(py, self.table()?)?)
    }

    /// Replaces dictionary keys by their values, on the column's device. Raises UsageError if the
    /// column is not dictionary-encoded. Dictionaries nested in the values are kept.
    ///
    /// >>> table["name"].dictionary_encode().decode_dictionary().to_pylist()
    /// ['ann', None, 'cy']
    fn decode_dictionary(&self, py: Python<'_>) -> PyResult<Self> {
        let table = self.table()?;
        self.with(detached(py, || table.decode_dictionaries(&[0]))?)
    }

    /// Replaces the values by `int32` keys of a dictionary, which has each value once, in the order
    /// of their first rows. Several chunks are combined first. A dictionary is returned as it is.
    ///
    /// >>> table["name"].dictionary_encode().type
    /// 'dictionary<values=string, indices=int32, ordered=0>'
    fn dictionary_encode(&self, py: Python<'_>) -> PyResult<Self> {
        let table = self.table()?;
        self.with(detached(py, || table.dictionary_encode(0))?)
    }

    /// Converts the values to another type, on the column's device. Texts, and decimals to other
    /// types than floats, are converted on the host. Nulls stay null, and dictionaries are decoded.
    ///
    /// type: a name such as "float32" or "timestamp[ms]", an Arrow type, or a dtype of NumPy.
    /// safe: True: a value that the type cannot represent is an error that names the row; floats
    /// are rounded to narrower floats. False: integers lose their upper bits, and floats, times and
    /// decimals are truncated towards 0. A text that is no value of the type is always an error.
    ///
    /// >>> table["id"].cast("float32").to_pylist()
    /// [1.0, 2.0, 3.0]
    #[pyo3(signature = (r#type, *, safe=true))]
    fn cast(&self, py: Python<'_>, r#type: &Bound<'_, PyAny>, safe: bool) -> PyResult<Self> {
        let (table, to) = (self.table()?, compute::data_type(r#type)?);
        self.with(detached(py, || table.cast(0, &to, compute::mode(safe)))?)
    }

    /// Replaces nulls by a value of the column's type, on the column's device.
    ///
    /// >>> table["name"].fill_null("?").to_pylist()
    /// ['ann', '?', 'cy']
    fn fill_null(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (table, value) = (self.table()?, compute::literal(value)?);
        self.with(detached(py, || table.fill_null(0, &value))?)
    }

    /// Returns a column of booleans, which are true for each null.
    ///
    /// >>> table["name"].is_null().to_pylist()
    /// [False, True, False]
    fn is_null(&self, py: Python<'_>) -> PyResult<Self> {
        let table = self.table()?;
        self.with(detached(py, || table.null_mask(0))?)
    }

    /// Returns the values whose boolean in `mask` is true; a null selects no value.
    ///
    /// mask: a column, an Arrow array, a tensor or a sequence of booleans.
    ///
    /// >>> table["id"].filter([True, False, True]).to_pylist()
    /// [1, 3]
    fn filter(&self, py: Python<'_>, mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = self.table()?;
        let mask = compute::rows_argument(self.shared()?, mask, compute::Rows::Mask)?;
        self.with(detached(py, || table.filter(&mask))?)
    }

    /// Returns the values at `indices`, in that order, on the column's device. The value of a null
    /// index is null. Several chunks are combined first.
    ///
    /// indices: a column, an Arrow array, a tensor or a sequence of integers.
    ///
    /// >>> table["name"].take([2, 0, None]).to_pylist()
    /// ['cy', 'ann', None]
    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let table = self.table()?;
        let indices = compute::rows_argument(self.shared()?, indices, compute::Rows::Indices)?;
        self.with(detached(py, || table.take(&indices))?)
    }

    /// Returns a column without nulls that exports as a tensor. Several chunks are combined first.
    ///
    /// Numbers and booleans stay, dates and times become integers, dictionaries become their keys,
    /// and lists of equal length become dimensions.
    ///
    /// nulls: "error"; "mask": returns (column, mask), where nulls are 0 and the mask, a column of
    /// booleans, is true for each null; or the value that replaces nulls: a number, or a value of
    /// the column's type.
    ///
    /// >>> tensor, mask = session.from_arrow(pa.array([1, None, 3])).to_tensor(nulls="mask")
    /// >>> np.from_dlpack(tensor), np.from_dlpack(mask)
    /// (array([1, 0, 3]), array([False,  True, False]))
    #[pyo3(signature = (nulls=None))]
    fn to_tensor<'py>(
        &self,
        py: Python<'py>,
        nulls: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let nulls = compute::tensor_nulls(nulls)?;
        let table = self.table()?;
        let (tensor, mask) = detached(py, || table.to_tensor(&nulls))?;
        let tensor = self.with(tensor)?;
        match mask {
            Some(mask) => (tensor, self.with(mask)?).into_bound_py_any(py),
            None => tensor.into_bound_py_any(py),
        }
    }

    /// Returns the elements of lists of any lengths, and the offsets of each list in them, which
    /// begin with 0: two columns that export as tensors, for example for
    /// `torch.nested.nested_tensor_from_jagged`. Several chunks are combined first.
    ///
    /// >>> lists = session.from_arrow(pa.array([[1, 2], [3]]))
    /// >>> [column.to_pylist() for column in lists.elements_and_offsets()]
    /// [[1, 2, 3], [0, 2, 3]]
    fn elements_and_offsets(&self, py: Python<'_>) -> PyResult<(Self, Self)> {
        let table = self.table()?;
        let (elements, offsets) = detached(py, || table.elements_and_offsets(0))?;
        Ok((self.with(elements)?, self.with(offsets)?))
    }

    /// Returns a NumPy array in host memory. Numbers and booleans without nulls are zero-copy on
    /// the cpu, and read-only; dates and times become `datetime64` and `timedelta64`, with NaT for
    /// nulls. Other columns are converted by pyarrow.
    ///
    /// >>> table["score"].to_numpy()
    /// array([0.5, 1.5, 2.5])
    fn to_numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _call = begin(slf.py());
        slf.py().import("crossdock._rows")?.call_method1("to_numpy", (slf,))
    }

    /// Returns the values as a list of Python objects. Needs pyarrow.
    ///
    /// >>> table["name"].to_pylist()
    /// ['ann', None, 'cy']
    fn to_pylist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method0("to_pylist")
    }

    /// The value of a row, which may be negative, as a Python object (needs pyarrow); or the rows
    /// of a slice as a column.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, column) = (slf.py(), slf.get());
        let table = column.table()?;
        if let Ok(slice) = key.cast::<PySlice>() {
            return column.with(compute::sliced(py, column.shared()?, table, slice)?)?.into_bound_py_any(py);
        }
        let row = compute::row_index(key.extract()?, table.rows())?;
        let one = Bound::new(py, column.with(rows_of_slice(table, row, Some(1))?)?)?;
        Self::to_pylist(&one)?.get_item(0)
    }

    /// The values as Python objects. Needs pyarrow.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("crossdock._rows")?.call_method1("values", (slf,))
    }

    /// Encodes the values with the session's plugins, and returns an EncodedArray. Several chunks
    /// are combined first. Raises UsageError if no plugin encodes to `encoding`, and
    /// UnsupportedError if the encoding cannot represent the type or the values.
    ///
    /// encoding: id of an encoding, for example "fastlanes.bitpacked" or "fastlanes.for".
    /// options: options of the encoding.
    ///
    /// >>> table["id"].encode("fastlanes.for").encoding
    /// 'fastlanes.for'
    #[pyo3(signature = (encoding, **options))]
    fn encode(
        &self,
        py: Python<'_>,
        encoding: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<EncodedArray> {
        let (table, options) = (self.table()?, crate::objects::files::options(options)?);
        let batch = match table.batches() {
            [batch] => batch.clone(),
            [] => {
                let none = crossdock_arrays::DeviceArray::empty(self.field.data_type()).or_raise()?;
                DeviceBatch::try_new(table.schema().clone(), 0, vec![none]).or_raise()?
            }
            [first, ..] => combined(py, table)?.batches().first().unwrap_or(first).clone(),
        };
        let session = table.session();
        let tree = detached(py, || session.encode(&batch, encoding, &options))?;
        Ok(EncodedArray::new(tree, self.shared()?))
    }

    /// Returns at most `length` values from `offset` on. Zero-copy.
    ///
    /// >>> table["id"].slice(1, 1).to_pylist()
    /// [2]
    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, offset: u64, length: Option<u64>) -> PyResult<Self> {
        self.with(rows_of_slice(self.table()?, offset, length)?)
    }

    /// Moves the column to a device. Zero-copy if the column is already on that device.
    ///
    /// >>> table["id"].to("cpu").device
    /// 'cpu'
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<Self> {
        let device = crate::objects::device::parse(device)?;
        let table = self.table()?;
        self.with(detached(py, || table.move_to(device))?)
    }

    /// Takes the column apart: a header, and buffers with the buffer protocol, in host memory.
    /// `Session.from_parts` rebuilds it, also in another process. The buffers share its memory if
    /// it is in host memory and no slice.
    ///
    /// >>> header, buffers = table["id"].to_parts()
    /// >>> session.from_parts(header, buffers).to_pylist()
    /// [1, 2, 3]
    fn to_parts<'py>(&self, py: Python<'py>) -> PyResult<parts::HeaderAndBuffers<'py>> {
        parts::to_python(py, self.parts(py)?)
    }

    /// Shares the column with the first process that opens it. Returns the description.
    fn _share_once<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let table = self.table()?;
        Ok(PyBytes::new(py, &detached(py, || table.share_column_once())?))
    }

    /// Why other processes cannot open the column in memory of its device; None if they can.
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

    // A copy would be equal, because columns are immutable.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Returns a `pyarrow.ChunkedArray` in host memory.
    ///
    /// >>> table["id"].to_pyarrow().type
    /// DataType(int64)
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

    /// Exports the column with Vortex's protocol: nested tuples (id, dtype, length, metadata,
    /// buffers, children) of canonical encodings. Each call returns new capsules of the same
    /// buffers, for one consumer.
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
                .map_err(|error| Error::Data { what: "cannot export the column".into(), source: error })?;
            session.encode_uncompressed(&schema, &batches)
        })?;
        vortex::export::tuples(py, tree)
    }

    /// Exports the column as a DLPack tensor, as the array API standard specifies.
    ///
    /// The tensor is read-only and zero-copy. A consumer that passes no `max_version` does not
    /// understand the read-only flag and gets a copy.
    /// copy: True: always copies; False: raises BufferError if a copy is needed.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack::export::dlpack(py, self, stream, max_version, dl_device, copy)
    }

    /// Function table of DLPack's C exchange API.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange_functions::capsule(py)
    }

    /// DLPack device type and device id.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        number_of(device_of(self.table()?))
    }

    /// CUDA Array Interface, version 3, read-only. Only for columns on CUDA devices.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        cuda::array_interface::of_column(py, self)
    }

    /// # Safety
    /// `view` is a valid `Py_buffer` to fill in; Python calls this slot.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python passes a valid `Py_buffer`.
        unsafe { buffer_protocol::get(slf, view, flags) }
    }

    /// # Safety
    /// `view` was filled in by `__getbuffer__`; Python calls this slot.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python passes a view that `__getbuffer__` filled in, and releases it once.
        unsafe { buffer_protocol::release(view) }
    }

    /// Returns a read-only NumPy array, zero-copy unless `copy=True` or another dtype is requested.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        buffer_protocol::array(slf, dtype, copy)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        crate::objects::show::column(py, self.name(), &self.r#type(), self.table()?)
    }

    /// HTML for notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        crate::objects::show::column_html(py, self.name(), &self.r#type(), self.table()?)
    }
}
