//! `Session`: a host of its own, a device, and what has been prepared for them.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crossdock::discovery::Search;
use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Host, Plugin, Policy, Session as HostSession};
use crossdock_memory::Stream;
use crossdock_plugin_api::{CancelFlag, Device, Validate};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arrow_in::Names;
use crate::column::Column;
use crate::device;
use crate::dlpack_formats::Formats;
use crate::dlpack_in::Wishes;
use crate::dlpack_in_producer::LEGACY_STREAM;
use crate::encoded::EncodedArray;
use crate::errors::{OrRaise, usage};
use crate::path::FsPath;
use crate::process::{self, Own, begin, detach};
use crate::table::Table;
use crate::warnings;
use crate::work::detached;

/// What sessions, tables and columns share. It ends with the last of them.
pub struct Shared {
    /// Where work happens.
    pub session: HostSession,
    formats: Mutex<Vec<(String, Way, Arc<CapsuleFormat>)>>,
    /// What tensors take.
    pub tensors: Formats,
    /// The device's, once it has been asked for.
    legacy_stream: OnceLock<Stream>,
}

impl Shared {
    /// A format of capsules by its name, chosen at the first use, and again where its plugin has panicked since.
    pub fn format(&self, name: &str, way: Way) -> crossdock::Result<Arc<CapsuleFormat>> {
        let mut formats = self.formats.lock().unwrap_or_else(PoisonError::into_inner);
        formats.retain(|(.., format)| format.is_usable());
        if let Some((.., format)) = formats.iter().find(|(known, its, _)| known == name && *its == way) {
            return Ok(format.clone());
        }
        let format = Arc::new(self.session.capsule_format(name, way)?);
        formats.push((name.to_owned(), way, format.clone()));
        Ok(format)
    }

    /// The legacy default stream of the session's device, where most strangers work.
    pub fn legacy_stream(&self) -> PyResult<&Stream> {
        if let Some(stream) = self.legacy_stream.get() {
            return Ok(stream);
        }
        let own = self.session.stream();
        // SAFETY: that stream is always there.
        let stream = unsafe { own.memory().adopt_stream(own.device(), LEGACY_STREAM as *mut c_void) };
        let stream = stream.or_raise()?;
        Ok(self.legacy_stream.get_or_init(|| stream))
    }
}

/// Where tables are made: a device, a budget of memory, and plugins. Sessions do not disturb each other.
///
/// A session may be closed, and left as a context manager; what was made in it lives on.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Session {
    open: Own<RwLock<Option<Arc<Shared>>>>,
    device: Device,
}

impl Session {
    /// What it works with, unless it was closed.
    pub fn shared(&self) -> PyResult<Arc<Shared>> {
        let open = self.open.get()?.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| usage("the session is closed: open another one"))
    }
}

// Python's names: what they are made in comes first.
#[allow(clippy::wrong_self_convention)]
#[pymethods]
impl Session {
    /// Opens a session.
    ///
    /// device: "cpu" or "cuda:N"; memory: the most bytes to hold at once, a number or a size like "32GiB", None for no limit;
    /// plugins: paths of plugin files and folders to look at before those that are installed; validate: "layout" or "full",
    /// None for full where bytes are read and layout where arrays are taken; threads: how many to keep busy at most.
    #[new]
    #[pyo3(signature = (device="cpu", *, memory=None, plugins=None, validate=None, threads=None))]
    fn new(
        py: Python<'_>,
        device: &str,
        memory: Option<&Bound<'_, PyAny>>,
        plugins: Option<Vec<FsPath>>,
        validate: Option<&str>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let device = device::parse(device)?;
        let memory = memory.map(device::bytes).transpose()?;
        let validate = match validate {
            None => None,
            Some("layout") => Some(Validate::Layout),
            Some("full") => Some(Validate::Full),
            Some(other) => return Err(usage(format!("validate={other:?}: expected \"layout\" or \"full\""))),
        };
        if threads == Some(0) {
            return Err(usage("threads=0: expected at least 1"));
        }
        let plugins = plugins.into_iter().flatten().map(|FsPath(path)| path);
        let search = search(py, plugins.collect())?;
        warnings::listen();
        let session = detached(py, move || {
            let policy = Policy::usual().map_err(crossdock::Error::from)?;
            let mut host = Host::builder().search(search).policy(policy);
            if let Some(bytes) = memory {
                host = host.memory_limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            if let Some(threads) = threads {
                host = host.threads(threads);
            }
            let mut session = host.build()?.session().device(device);
            if let Some(validate) = validate {
                session = session.validate(validate);
            }
            session.open()
        })?;
        let shared = Shared {
            session,
            formats: Mutex::default(),
            tensors: Formats::default(),
            legacy_stream: OnceLock::new(),
        };
        process::remember(shared.session.host().backend());
        Ok(Self { open: Own::new(RwLock::new(Some(Arc::new(shared)))), device })
    }

    /// Where its tables are.
    #[getter]
    fn device(&self) -> String {
        self.device.to_string()
    }

    /// Names of the plugins that were found.
    #[getter]
    fn plugins(&self) -> PyResult<Vec<String>> {
        Ok(self.shared()?.session.host().plugins().map(|plugin| plugin.name.clone()).collect())
    }

    /// The encodings that it decodes, and by which plugins: {id: [name]}. The first one is asked, the others stand in its shadow.
    fn encodings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.shared()?;
        // Plugins are loaded where they have not been yet.
        let found = warnings::after(py, Ok(detach(py, || shared.session.encodings())))?;
        let names = |plugins: &[Arc<Plugin>]| plugins.iter().map(|plugin| plugin.name().to_owned()).collect();
        let named = found.into_iter().map(|(id, plugins)| (id, names(&plugins)));
        named.collect::<Vec<(String, Vec<String>)>>().into_py_dict(py)
    }

    /// Bytes that are held, by whom: {account: {device: bytes}}. Those who hold nothing are left out.
    fn memory_used(&self) -> PyResult<BTreeMap<String, BTreeMap<String, u64>>> {
        let mut used: BTreeMap<String, BTreeMap<String, u64>> = Default::default();
        let leaks = self.shared()?.session.host().ledger().leaks();
        for leak in leaks.into_iter().filter(|leak| leak.blocks > 0) {
            *used.entry(leak.account.clone()).or_default().entry(leak.device.to_string()).or_default() +=
                leak.bytes;
        }
        Ok(used)
    }

    /// Any object that speaks an Arrow protocol: as a table, or arrays as a column. Zero-copy where it lies on the session's
    /// device.
    ///
    /// schema: what it is to become, a Schema for a table, a Field for a column; the producer is asked for it, numbers are cast
    /// where none of them changes, and anything else that differs is a UsageError. as_column: True for a column, False for a
    /// table; None: arrays that are no structs are a column, and structs are where one of them is null, where they have an
    /// extension type, where `obj` is an array (its class has `type` or `dtype`, and neither `columns`, `column_names` nor
    /// `num_columns`), or where their type has a name and may be null. names: "strict" refuses names of columns that are not UTF-8;
    /// "replace" has U+FFFD for what is not, with a warning for each.
    #[pyo3(signature = (obj, schema=None, *, as_column=None, names="strict"))]
    fn from_arrow<'py>(
        &self,
        obj: &Bound<'py, PyAny>,
        schema: Option<&Bound<'py, PyAny>>,
        as_column: Option<bool>,
        names: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow_in::from_arrow(&self.shared()?, obj, schema, as_column, Names::of(names)?)
    }

    /// A column of one tensor: of any object that speaks DLPack, the best way that it does, of one that has nothing but a
    /// `__cuda_array_interface__`, or of a capsule of a tensor. A table of a list of tensors, or of a dict of them by name, which may
    /// lie on several devices. In place where the elements lie as Arrow has them on the session's device, gathered or moved where
    /// not.
    ///
    /// A tensor of torch that requires gradients, or has the negative or the conjugate bit, is a BufferError: its memory says less
    /// than the tensor. Give `tensor.detach()`, `tensor.resolve_neg()` or `tensor.resolve_conj()`.
    ///
    /// schema: what they are to become; with k times as many tensors as columns, a list gives k batches. bools: "bytes" (in
    /// place, the default) or "bits"; not together with a schema, which says so. masks: tensors of booleans, true where a row is null, in the
    /// shape of `x`. A capsule on a CUDA device is taken to be ready on the legacy default stream.
    #[pyo3(signature = (x, schema=None, *, bools=None, masks=None))]
    fn from_dlpack<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        schema: Option<&Bound<'py, PyAny>>,
        bools: Option<&str>,
        masks: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::dlpack_in::from_dlpack(self.shared()?, x, &Wishes { schema, bools, masks })
    }

    /// A column of an object's `__cuda_array_interface__`, of version 3 or older. Prefer from_dlpack where there is a choice:
    /// this interface has no place for an owner, so that the whole object is kept, and before version 3 none for a stream.
    fn from_cuda_array_interface(&self, py: Python<'_>, obj: &Bound<'_, PyAny>) -> PyResult<Column> {
        crate::cuda_array_interface::column_from(py, self.shared()?, obj)
    }

    /// A table or a column of the two capsules that `__arrow_c_device_array__` or `__arrow_c_array__` gives. Structs are a column
    /// where `as_column` says so, where one of them is null, or where their type has a name and may be null. names: as for
    /// `from_arrow`.
    #[pyo3(signature = (schema, array, *, as_column=None, names="strict"))]
    fn from_capsules<'py>(
        &self,
        schema: &Bound<'py, PyAny>,
        array: &Bound<'py, PyAny>,
        as_column: Option<bool>,
        names: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow_in::from_capsules(&self.shared()?, schema, array, as_column, Names::of(names)?)
    }

    /// A column of any array that speaks Vortex's protocol, decoded by the plugins that the session has for its encodings.
    fn from_vortex(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Column> {
        crate::vortex_in::from_vortex(py, &self.shared()?, array)
    }

    /// An encoded array that is not decoded yet, of anything with `__crossdock_encoded_array__` or `__vortex_array_metadata__`, or
    /// of bytes that `EncodedArray.to_bytes` made. Bytes are used in place: who changes them meanwhile changes the array.
    fn encoded(&self, py: Python<'_>, obj: &Bound<'_, PyAny>) -> PyResult<EncodedArray> {
        crate::encoded::encoded(py, &self.shared()?, obj)
    }

    /// An encoded array of one node: for samples of encodings that nobody writes yet. `type` is whatever has `__arrow_c_schema__`, a
    /// field of this package or of pyarrow for one; `buffers` are bytes-like, and are copied; `children` are what `encoded` takes, or
    /// columns. Whether they fit the encoding is for the plugin that decodes it.
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
        let parts = crate::encoded::Parts { encoding, r#type, length, metadata, buffers, children };
        crate::encoded::build(py, &self.shared()?, parts)
    }

    /// An Arrow IPC file or stream: a path, bytes-like, or a file object. Such a one is read to its end, and stands after what
    /// belongs to the table afterwards where it can seek. A file is mapped where that saves a
    /// copy: with `map=False` it is read instead.
    #[pyo3(signature = (source, *, map=true))]
    fn read_ipc(&self, source: &Bound<'_, PyAny>, map: bool) -> PyResult<Table> {
        crate::files::read_ipc(&self.shared()?, source, map)
    }

    /// A file of any format that a plugin reads, recognised by its bytes unless `format` says which. `map` as for `read_ipc`.
    #[pyo3(signature = (path, format=None, *, map=true, progress=None, **options))]
    fn read(
        &self,
        py: Python<'_>,
        path: FsPath,
        format: Option<String>,
        map: bool,
        progress: Option<&Bound<'_, PyAny>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Table> {
        let options = crate::files::options(options.as_ref())?;
        crate::files::read(py, &self.shared()?, path.0, format, map, progress, options)
    }

    /// A capsule `crossdock.host.v1` for other extension modules: its pointer is to a `crossdock_host`, which crossdock.h
    /// describes, and which gives them the session's memory, log and settings without linking anything. What they take is
    /// counted under `name`, within the session's budget.
    #[pyo3(signature = (name="extension"))]
    fn __crossdock_host__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        crate::host_capsule::lend(py, self.shared()?.session.host_handle(name).or_raise()?)
    }

    /// Waits until everything that was asked for has run on its device.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        detach(py, || shared.session.stream().synchronize()).or_raise()
    }

    /// Ends it; what was made in it lives on. Closing twice is harmless.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A child of the process that opened it leaves it as it is.
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

/// A flag of one piece of work, and the session with it.
pub fn with_flag(shared: &Shared) -> (HostSession, CancelFlag) {
    let flag = CancelFlag::new();
    (shared.session.with_cancel_flag(flag.clone()), flag)
}

/// Where to look for plugins: what was given, the environment's, the package's own, those of other packages.
fn search(py: Python<'_>, given: Vec<PathBuf>) -> PyResult<Search> {
    let _call = begin(py);
    let folders: Vec<PathBuf> = py.import("crossdock._plugins")?.call_method0("folders")?.extract()?;
    let search = given.into_iter().fold(Search::nowhere(), Search::given).environment_of_process();
    Ok(folders.into_iter().fold(search, Search::installed))
}
