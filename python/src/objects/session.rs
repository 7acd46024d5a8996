//! `Session`: a host, its device, and the formats that were looked up.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crossdock::{Host, Plugin, Policy};
use crossdock_plugin_api::Device;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyTuple};

use crate::arrow::import::Names;
use crate::dlpack::import::ImportOptions;
use crate::objects::column::Column;
use crate::objects::device;
use crate::objects::encoded::EncodedArray;
use crate::objects::files::ReadArguments;
use crate::objects::request::RequestArguments;
use crate::objects::scan::Scan;
use crate::objects::session_state::{Settings, parse_validate, search};
pub use crate::objects::session_state::{Shared, with_flag};
use crate::objects::table::Table;
use crate::objects::writer::Writer;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::path::FsPath;
use crate::runtime::process::{self, ProcessLocal, detach};
use crate::runtime::warnings;
use crate::runtime::work::detached;

/// A device, a memory budget and plugins. Tables and columns are created in a session. Sessions are
/// independent of each other.
///
/// A session is a context manager. Its tables and columns outlive it.
///
/// >>> with cd.Session(memory="2GiB") as session:
/// ...     session.device
/// 'cpu'
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Session {
    open: ProcessLocal<RwLock<Option<Arc<Shared>>>>,
    device: Device,
    settings: Settings,
}

impl Session {
    /// Returns the state of an open session.
    ///
    /// # Errors
    /// UsageError if the session is closed, or in a forked child.
    pub fn shared(&self) -> PyResult<Arc<Shared>> {
        let open = self.open.get()?.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| usage("the session is closed: open another one"))
    }
}

// The Python API fixes these names.
#[allow(clippy::wrong_self_convention)]
#[pymethods]
impl Session {
    /// Opens a session.
    ///
    /// device: "cpu" or "cuda:N".
    /// memory: maximum number of bytes to hold at once, as a number or a size like "32GiB"; None:
    /// no limit.
    /// plugins: paths of plugin files and folders, which take precedence over installed plugins.
    /// validate: "layout" or "full"; None: "full" for bytes, "layout" for arrays in memory.
    /// threads: maximum number of worker threads.
    /// allocator: allocates the memory of the session's CUDA device, so that the process has one
    /// pool: a memory resource of rmm or cuda.core, the module torch (its caching allocator), an
    /// object with `__crossdock_allocator__` (docs/python.md), or an object with
    /// `allocate(nbytes, stream) -> address` and `deallocate(address, nbytes, stream)`, which are
    /// called on any thread. None: a pool of the session.
    #[new]
    #[pyo3(signature = (device="cpu", *, memory=None, plugins=None, validate=None, threads=None, allocator=None))]
    fn new(
        py: Python<'_>,
        device: &str,
        memory: Option<&Bound<'_, PyAny>>,
        plugins: Option<Vec<FsPath>>,
        validate: Option<&str>,
        threads: Option<usize>,
        allocator: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let device = device::parse(device)?;
        let memory = memory.map(device::bytes).transpose()?;
        let validate_name = validate.map(ToOwned::to_owned);
        let validate = parse_validate(validate)?;
        if threads == Some(0) {
            return Err(usage("threads=0: expected at least 1"));
        }
        let absolute = |FsPath(path): FsPath| std::path::absolute(path);
        let plugins =
            plugins.map(|paths| paths.into_iter().map(absolute).collect::<std::io::Result<Vec<_>>>());
        let plugins = plugins.transpose()?;
        let has_allocator = allocator.is_some();
        let settings = Settings { memory, plugins, validate: validate_name, threads, has_allocator };
        let allocator =
            allocator.map(|given| crate::objects::allocator::allocator(given, device)).transpose()?;
        let search = search(py, settings.plugins.clone().unwrap_or_default())?;
        warnings::listen();
        let session = detached(py, move || {
            let policy = Policy::from_standard_files().map_err(crossdock::Error::from)?;
            let mut host = Host::builder().search(search).policy(policy);
            if let Some(bytes) = memory {
                host = host.memory_limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            if let Some(threads) = threads {
                host = host.threads(threads);
            }
            if let Some(allocator) = allocator {
                host = host.allocator(device, allocator);
            }
            let mut session = host.build()?.session().device(device);
            if let Some(validate) = validate {
                session = session.validate(validate);
            }
            session.open()
        })?;
        let shared = Shared::new(session, has_allocator);
        process::remember(shared.session.host().backend());
        Ok(Self { open: ProcessLocal::new(RwLock::new(Some(Arc::new(shared)))), device, settings })
    }

    /// The device of its tables.
    ///
    /// >>> session.device
    /// 'cpu'
    #[getter]
    fn device(&self) -> String {
        self.device.to_string()
    }

    /// Names of the available plugins.
    ///
    /// >>> "arrow-ipc" in session.plugins
    /// True
    #[getter]
    fn plugins(&self) -> PyResult<Vec<String>> {
        Ok(self.shared()?.session.host().plugins().map(|plugin| plugin.name.clone()).collect())
    }

    /// The encodings that the session decodes, and the names of the plugins that decode them: {id:
    /// [name]}. The session uses the first plugin.
    ///
    /// >>> "fastlanes.for" in session.encodings()
    /// True
    fn encodings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.shared()?;
        // This loads plugins that are not loaded yet.
        let encodings = warnings::after(py, Ok(detach(py, || shared.session.encodings())))?;
        let names = |plugins: &[Arc<Plugin>]| plugins.iter().map(|plugin| plugin.name().to_owned()).collect();
        let pairs = encodings.into_iter().map(|(id, plugins)| (id, names(&plugins)));
        pairs.collect::<Vec<(String, Vec<String>)>>().into_py_dict(py)
    }

    /// Bytes in use: {account: {device: bytes}}. Accounts without memory are omitted.
    ///
    /// >>> cd.Session().memory_used()
    /// {}
    fn memory_used(&self) -> PyResult<BTreeMap<String, BTreeMap<String, u64>>> {
        Ok(self.shared()?.memory_used())
    }

    /// Imports an object that implements an Arrow PyCapsule protocol, as a table or a column.
    /// Zero-copy if the data is on the session's device.
    ///
    /// schema: the requested type: a Schema for a table, a Field for a column. It is passed to the
    /// producer. Numbers are cast if no value changes; any other difference is a UsageError.
    /// as_column: True: a column; False: a table; None: arrays other than structs become a column.
    /// Structs become a column if a struct is null, if the type is an extension type, if `obj` is
    /// an array (its class has `type` or `dtype`, but not `columns`, `column_names` or
    /// `num_columns`), or if the type has a name and is nullable; else a table.
    /// names: "strict" rejects column names that are not UTF-8; "replace" replaces invalid bytes by
    /// U+FFFD, with a warning for each name.
    ///
    /// >>> session.from_arrow(pa.table({"x": [1, 2]})).column_names
    /// ['x']
    /// >>> session.from_arrow(pa.array([1, 2])).type
    /// 'int64'
    #[pyo3(signature = (obj, schema=None, *, as_column=None, names="strict"))]
    fn from_arrow<'py>(
        &self,
        obj: &Bound<'py, PyAny>,
        schema: Option<&Bound<'py, PyAny>>,
        as_column: Option<bool>,
        names: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow::import::from_arrow(&self.shared()?, obj, schema, as_column, Names::parse(names)?)
    }

    /// Imports a tensor as a column, or a list or dict of tensors as a table. The tensors may be on
    /// several devices.
    ///
    /// x: an object that implements DLPack or only `__cuda_array_interface__`, a DLPack capsule, a
    /// list of them, or a dict of them by column name. A tensor is imported in place if it is on
    /// the session's device and its elements are contiguous; else it is copied. A capsule on a CUDA
    /// device must be ready on the legacy default stream.
    /// schema: the requested type. If the schema has n columns, a list of k * n tensors gives k
    /// batches.
    /// bools: "bytes" (default, in place) or "bits". Not allowed together with `schema`, which
    /// determines the type of booleans.
    /// masks: boolean tensors in the structure of `x`; True marks a null row.
    /// num_rows: for a list or a dict: the number of rows, if only the device knows it. A tensor of
    /// one integer (int32, uint32, int64 or uint64) on the session's device, as `x` accepts it. The
    /// length of the tensors is then the capacity of the table, and the number is read when the
    /// table's length is first needed. See `Table.capacity`.
    ///
    /// A torch tensor that requires gradients, or that has the negative or the conjugate bit set,
    /// raises a BufferError, because its memory does not hold its values: pass `tensor.detach()`,
    /// `tensor.resolve_neg()` or `tensor.resolve_conj()`.
    ///
    /// >>> session.from_dlpack({"x": np.arange(3), "y": np.zeros(3)}).num_rows
    /// 3
    #[pyo3(signature = (x, schema=None, *, bools=None, masks=None, num_rows=None))]
    fn from_dlpack<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        schema: Option<&Bound<'py, PyAny>>,
        bools: Option<&str>,
        masks: Option<&Bound<'py, PyAny>>,
        num_rows: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = ImportOptions { schema, bools, masks, num_rows };
        crate::dlpack::import::from_dlpack(self.shared()?, x, &options)
    }

    /// Imports an object's `__cuda_array_interface__`, version 3 or older, as a column. Prefer
    /// from_dlpack: this interface has no owner, so the column keeps the whole object alive, and
    /// versions before 3 have no stream.
    ///
    /// >>> cuda_session.from_cuda_array_interface(context.buffer_from_data(b"abc")).type
    /// 'uint8'
    fn from_cuda_array_interface(&self, py: Python<'_>, obj: &Bound<'_, PyAny>) -> PyResult<Column> {
        crate::cuda::array_interface::column_from(py, self.shared()?, obj)
    }

    /// Imports the two capsules that `__arrow_c_device_array__` or `__arrow_c_array__` returns, as
    /// a table or a column. Structs become a column if `as_column` is True, if a struct is null, or
    /// if the type has a name and is nullable. names: as in `from_arrow`.
    ///
    /// >>> session.from_capsules(*pa.array([1, 2]).__arrow_c_array__()).type
    /// 'int64'
    #[pyo3(signature = (schema, array, *, as_column=None, names="strict"))]
    fn from_capsules<'py>(
        &self,
        schema: &Bound<'py, PyAny>,
        array: &Bound<'py, PyAny>,
        as_column: Option<bool>,
        names: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow::import::from_capsules(&self.shared()?, schema, array, as_column, Names::parse(names)?)
    }

    /// Imports an array that implements Vortex's protocol, and decodes it with the session's
    /// plugins.
    ///
    /// >>> session.from_vortex(table["id"]).to_pylist()
    /// [1, 2, 3]
    fn from_vortex(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Column> {
        crate::vortex::import::from_vortex(py, &self.shared()?, array)
    }

    /// Imports an encoded array without decoding it.
    ///
    /// obj: an object with `__crossdock_encoded_array__` or `__vortex_array_metadata__`, or bytes
    /// from `EncodedArray.to_bytes`. Bytes are used in place; changing them changes the array.
    ///
    /// >>> data = table["id"].encode("fastlanes.for").to_bytes()
    /// >>> session.encoded(data).encoding
    /// 'fastlanes.for'
    fn encoded(&self, py: Python<'_>, obj: &Bound<'_, PyAny>) -> PyResult<EncodedArray> {
        crate::objects::encoded::encoded(py, &self.shared()?, obj)
    }

    /// Builds an encoded array of one node, for example a sample for a new encoding. The plugin
    /// that decodes it checks the parts.
    ///
    /// type: an object with `__arrow_c_schema__`, such as a field of this package or of pyarrow.
    /// buffers: bytes-like objects, which are copied.
    /// children: columns, or arguments of `encoded`.
    ///
    /// >>> values = np.array([3, 1, 2], "int32")
    /// >>> session.build_encoded("vortex.primitive", pa.int32(), 3, buffers=[values])
    /// crossdock.EncodedArray: vortex.primitive of int32, 3 values
    #[pyo3(signature = (encoding, r#type, length, *, metadata=None, buffers=None, children=None))]
    #[allow(clippy::too_many_arguments)]
    fn build_encoded(
        &self,
        py: Python<'_>,
        encoding: String,
        r#type: &Bound<'_, PyAny>,
        length: u64,
        metadata: Option<Vec<u8>>,
        buffers: Option<Vec<Bound<'_, PyAny>>>,
        children: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<EncodedArray> {
        let metadata = metadata.unwrap_or_default();
        let (buffers, children) = (buffers.unwrap_or_default(), children.unwrap_or_default());
        let parts = crate::objects::encoded::Parts { encoding, r#type, length, metadata, buffers, children };
        crate::objects::encoded::build(py, &self.shared()?, parts)
    }

    /// Reads an Arrow IPC file or stream.
    ///
    /// source: a path, a bytes-like object, or a file object. A seekable file object is read in
    /// ranges, and its position afterwards is the end of the table. Another file object is read to
    /// its end.
    /// columns, rows, filter, limit: as in `scan`.
    /// map: whether a file may be memory-mapped where that saves a copy.
    ///
    /// >>> session.read_ipc(folder / "people.arrow", columns=["id"]).column_names
    /// ['id']
    #[pyo3(signature = (source, *, columns=None, rows=None, filter=None, limit=None, map=true))]
    #[allow(clippy::too_many_arguments)]
    fn read_ipc(
        &self,
        source: &Bound<'_, PyAny>,
        columns: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        map: bool,
    ) -> PyResult<Table> {
        let request = RequestArguments { columns, rows, filter, limit };
        crate::objects::files::read_ipc(&self.shared()?, source, &request, map)
    }

    /// Reads a table of any format that a plugin reads.
    ///
    /// source, format, columns, rows, filter, limit, schema, storage_options, options: as in
    /// `scan`.
    /// map: as in `read_ipc`.
    /// progress: True shows a bar if stderr is a terminal; or a function (bytes_done, bytes_total).
    ///
    /// >>> session.read(folder / "people.arrow", filter=[("id", ">", 1)]).num_rows
    /// 2
    #[pyo3(signature = (source, format=None, *, columns=None, rows=None, filter=None, limit=None, schema=None, map=true, progress=None, storage_options=None, **options))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        source: &Bound<'_, PyAny>,
        format: Option<String>,
        columns: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        schema: Option<&Bound<'_, PyAny>>,
        map: bool,
        progress: Option<&Bound<'_, PyAny>>,
        storage_options: Option<&Bound<'_, PyDict>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let options = crate::objects::files::options(options.as_ref())?;
        let storage = crate::objects::files::options(storage_options)?;
        let request = RequestArguments { columns, rows, filter, limit };
        let arguments = ReadArguments { format, request, schema, map, options, storage };
        crate::objects::files::read(source, &self.shared()?, arguments, progress)
    }

    /// Describes a table that is read in batches. Only its schema is read now.
    ///
    /// source: a path, a folder, a pattern such as "data/*.arrow", a URI such as
    /// "s3://bucket/name", which a plugin opens, a list of these, a bytes-like object, or a file
    /// object, which is read in ranges if it is seekable. Several files must have the same schema
    /// and are read in order; the files of a folder or a pattern are ordered by name.
    /// format: name of the format; None: recognised by the contents.
    /// columns: names of columns, in the order of the result. "b.c" is the field c of the struct b,
    /// or, without such a field, the column "b.c"; ("b", "c") is only the field. None: all columns.
    /// rows: (start, stop), a range, or a list of ascending ranges: positions in the whole table,
    /// before the filter.
    /// filter: a list of comparisons (column, operator, value), all of which a row must fulfil. The
    /// operators are == != < <= > >=. Numbers are compared exactly; nulls fulfil no comparison.
    /// limit: maximum number of rows of the result.
    /// schema: the schema of the result, a Schema or another object with `__arrow_c_schema__`. The
    /// files may have other columns, which are not read, and numbers of other types if no value
    /// changes. None: all files must have the schema of the first file.
    /// batch_rows: maximum number of rows of a batch; None: the batches of the input.
    /// prefetch: number of batches that a thread reads ahead, within the memory budget; 0: none.
    /// map: as in `read_ipc`.
    /// fragment: the token of a fragment of the source; `rows` are then positions in the fragment.
    /// The source may also be a Fragment, without other arguments.
    /// storage_options: options of the plugin that opens URIs, for example credentials. A pickled
    /// scan contains them.
    /// options: options of the format.
    ///
    /// >>> scan = session.scan(folder / "people.arrow", columns=["id", "score"], batch_rows=2)
    /// >>> [batch.num_rows for batch in scan]
    /// [2, 1]
    #[pyo3(signature = (source, format=None, *, columns=None, rows=None, filter=None, limit=None, schema=None, batch_rows=None, prefetch=2, map=true, fragment=None, storage_options=None, **options))]
    #[allow(clippy::too_many_arguments)]
    fn scan(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        format: Option<String>,
        columns: Option<&Bound<'_, PyAny>>,
        rows: Option<&Bound<'_, PyAny>>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<u64>,
        schema: Option<&Bound<'_, PyAny>>,
        batch_rows: Option<u64>,
        prefetch: usize,
        map: bool,
        fragment: Option<&Bound<'_, PyBytes>>,
        storage_options: Option<&Bound<'_, PyDict>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Py<Scan>> {
        if crate::objects::fragments::is_fragment(source)? {
            let keywords = [columns, rows, filter, schema, fragment.map(|token| token.as_any())];
            let has_others = keywords.iter().any(Option::is_some)
                || (format.is_some() || limit.is_some() || batch_rows.is_some() || options.is_some());
            let scan = crate::objects::fragments::scan(slf.as_any(), source, has_others)?;
            return Ok(scan.cast_into::<Scan>()?.unbind());
        }
        if batch_rows == Some(0) {
            return Err(usage("batch_rows=0: expected at least 1"));
        }
        let keywords = match &options {
            Some(options) => options.copy()?,
            None => PyDict::new(py),
        };
        keywords.set_item("format", &format)?;
        keywords.set_item("columns", columns)?;
        keywords.set_item("rows", rows)?;
        keywords.set_item("filter", filter)?;
        keywords.set_item("limit", limit)?;
        keywords.set_item("schema", schema)?;
        keywords.set_item("batch_rows", batch_rows)?;
        keywords.set_item("prefetch", prefetch)?;
        keywords.set_item("map", map)?;
        keywords.set_item("fragment", fragment)?;
        keywords.set_item("storage_options", storage_options)?;
        let storage = crate::objects::files::options(storage_options)?;
        let options = crate::objects::files::options(options.as_ref())?;
        let request = RequestArguments { columns, rows, filter, limit };
        let arguments = ReadArguments { format, request, schema, map, options, storage };
        let sizes = (prefetch, batch_rows.unwrap_or(0));
        let token = fragment.map(|token| token.as_bytes());
        Py::new(py, crate::objects::scan::scan(slf, source, arguments, sizes, token, keywords)?)
    }

    /// Writes batches to a file. The file appears complete or not at all.
    ///
    /// source: a table, a scan, or an object with an Arrow protocol. The batches of a stream are
    /// written one after another, so that it may be larger than the memory.
    /// format: name of the format; None: chosen by the file extension.
    /// options: options of the format.
    ///
    /// >>> session.write(session.scan(folder / "people.arrow"), folder / "copy.arrow")
    /// >>> session.read(folder / "copy.arrow").num_rows
    /// 3
    #[pyo3(signature = (source, path, format=None, **options))]
    fn write(
        &self,
        source: &Bound<'_, PyAny>,
        path: FsPath,
        format: Option<String>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let options = crate::objects::files::options(options.as_ref())?;
        crate::objects::writer::write(&self.shared()?, source, path, format, options)
    }

    /// Opens an output to which tables are written one after another.
    ///
    /// schema: a Schema, or another object with `__arrow_c_schema__`.
    /// format, options: as in `write`.
    ///
    /// >>> with session.writer(folder / "twice.arrow", table.schema) as writer:
    /// ...     writer.write(table)
    /// ...     writer.write(table)
    /// >>> session.read(folder / "twice.arrow").num_rows
    /// 6
    #[pyo3(signature = (path, schema, format=None, **options))]
    fn writer(
        &self,
        py: Python<'_>,
        path: FsPath,
        schema: &Bound<'_, PyAny>,
        format: Option<String>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Writer> {
        let options = crate::objects::files::options(options.as_ref())?;
        let schema = crate::dlpack::import::schema_of(schema)?;
        crate::objects::writer::open(py, &self.shared()?, path, schema, format, options)
    }

    /// Returns a capsule `crossdock.host.v1` for other extension modules. Its pointer is a
    /// `crossdock_host*` (crossdock.h), which gives access to the session's memory, log and
    /// settings without linking anything. Allocations count under the account `name`, within the
    /// session's budget.
    #[pyo3(signature = (name="extension"))]
    fn __crossdock_host__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        crate::runtime::host_capsule::new_capsule(py, self.shared()?.session.host_handle(name).or_raise()?)
    }

    /// Rebuilds an object that `to_parts` took apart, on the session's device. The buffers are used
    /// in place if the device is the cpu; changing them changes the object. Raises DataError if the
    /// header is damaged or belongs to another version, or if buffers are missing.
    ///
    /// header: a bytes-like object.
    /// buffers: contiguous bytes-like objects, in the order of `to_parts`. Their contents are
    /// validated only by a session with `validate="full"`.
    ///
    /// >>> session.from_parts(*table.to_parts()).num_rows
    /// 3
    fn from_parts<'py>(
        &self,
        header: &Bound<'py, PyAny>,
        buffers: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::objects::rebuild::from_parts(&self.shared()?, header, buffers)
    }

    /// Opens a table or a column that another process on this host shares: `SharedTable`. The
    /// result uses its memory in place if the session is on the same device; otherwise it is
    /// copied. Raises DeviceError if the other process has ended or has closed the table, or if
    /// this process does not see its GPU.
    ///
    /// description: a bytes-like object.
    ///
    /// >>> with table.share() as shared:
    /// ...     session.open_shared(shared.description).num_rows
    /// 3
    fn open_shared<'py>(&self, description: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::objects::shared::open(&self.shared()?, description)
    }

    /// The device, as this process numbers it, of a table that another process shares.
    fn _device_of_shared(&self, description: &[u8]) -> PyResult<String> {
        Ok(self.shared()?.session.device_of_shared(description).or_raise()?.to_string())
    }

    /// The arguments that open an equal session: device, memory, plugins, validate, threads.
    #[getter]
    fn _settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.settings.to_python(py, self.device)
    }

    /// Whether `close` was not called.
    #[getter]
    fn _is_open(&self) -> bool {
        self.shared().is_ok()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        if self.settings.has_allocator {
            return Err(usage(
                "a session with an allocator cannot be pickled: open one in the other process",
            ));
        }
        Ok((py.import("crossdock._session")?.getattr("session_with")?, self._settings(py)?))
    }

    /// Waits until all submitted work of the session has finished on its device.
    ///
    /// >>> session.synchronize()
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        detach(py, || shared.session.stream().synchronize()).or_raise()
    }

    /// Closes the session. Its tables and columns stay valid. Closing twice has no effect.
    ///
    /// >>> opened = cd.Session()
    /// >>> opened.close()
    /// >>> opened
    /// crossdock.Session("cpu", closed)
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A forked child must not close its parent's session.
        if let Ok(open) = self.open.get() {
            let open = open.write().unwrap_or_else(PoisonError::into_inner).take();
            detach(py, || drop(open));
        }
        warnings::after(py, Ok(()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        match self.shared() {
            Ok(_) => format!("crossdock.Session({:?})", self.device.to_string()),
            Err(_) => format!("crossdock.Session({:?}, closed)", self.device.to_string()),
        }
    }
}
