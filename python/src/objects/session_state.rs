//! The state of a session.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossdock::discovery::Search;
use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Session as HostSession};
use crossdock_memory::Stream;
use crossdock_plugin_api::{CancelFlag, Device, Validate};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::dlpack::formats::Formats;
use crate::dlpack::producer::LEGACY_STREAM;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::process::begin;

/// The arguments with which a session was opened, except its device.
pub struct Settings {
    pub memory: Option<u64>,
    /// Absolute paths.
    pub plugins: Option<Vec<PathBuf>>,
    pub validate: Option<String>,
    pub threads: Option<usize>,
    /// An allocator cannot be pickled.
    pub has_allocator: bool,
}

impl Settings {
    /// Returns device, memory, plugins, validate and threads.
    pub fn to_python<'py>(&self, py: Python<'py>, device: Device) -> PyResult<Bound<'py, PyTuple>> {
        let Settings { memory, plugins, validate, threads, .. } = self;
        let plugins =
            plugins.as_ref().map(|paths| PyTuple::new(py, paths.iter().map(|path| path.as_os_str())));
        let plugins = plugins.transpose()?;
        (device.to_string(), memory, plugins, validate, threads).into_pyobject(py)
    }
}

/// Parses the argument `validate`.
pub fn parse_validate(validate: Option<&str>) -> PyResult<Option<Validate>> {
    match validate {
        None => Ok(None),
        Some("layout") => Ok(Some(Validate::Layout)),
        Some("full") => Ok(Some(Validate::Full)),
        Some(other) => Err(usage(format!("validate={other:?}: expected \"layout\" or \"full\""))),
    }
}

/// State of a session, shared by its tables and columns, which may outlive the session.
pub struct Shared {
    pub session: HostSession,
    /// Whether allocations call Python code, which needs the interpreter's lock. A thread that has
    /// the lock must then not wait for a lock of the host.
    pub calls_python: bool,
    formats: Mutex<Vec<(String, Way, Arc<CapsuleFormat>)>>,
    /// Formats of tensors.
    pub tensors: Formats,
    /// The device's legacy default stream, which is looked up at its first use.
    legacy_stream: OnceLock<Stream>,
}

impl Shared {
    pub fn new(session: HostSession, calls_python: bool) -> Self {
        Self {
            session,
            calls_python,
            formats: Mutex::default(),
            tensors: Formats::default(),
            legacy_stream: OnceLock::new(),
        }
    }

    /// Returns the bytes in use: {account: {device: bytes}}.
    pub fn memory_used(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut used: BTreeMap<String, BTreeMap<String, u64>> = Default::default();
        let leaks = self.session.host().ledger().leaks();
        for leak in leaks.into_iter().filter(|leak| leak.blocks > 0) {
            *used.entry(leak.account.clone()).or_default().entry(leak.device.to_string()).or_default() +=
                leak.bytes;
        }
        used
    }

    /// Returns a capsule format by its name. The format is looked up at its first use, and again
    /// after a panic of its plugin.
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

    /// Returns the legacy default stream of the session's device, which most external libraries
    /// use.
    pub fn legacy_stream(&self) -> PyResult<&Stream> {
        if let Some(stream) = self.legacy_stream.get() {
            return Ok(stream);
        }
        let session_stream = self.session.stream();
        let (memory, device) = (session_stream.memory(), session_stream.device());
        // SAFETY: the legacy default stream exists as long as its context.
        let stream = unsafe { memory.adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        let stream = stream.or_raise()?;
        Ok(self.legacy_stream.get_or_init(|| stream))
    }
}

/// Returns the session with a new cancel flag, for one call.
pub fn with_flag(shared: &Shared) -> (HostSession, CancelFlag) {
    let flag = CancelFlag::new();
    (shared.session.with_cancel_flag(flag.clone()), flag)
}

/// Returns the plugin search path: `paths`, the paths in the environment, the package's own
/// plugins, and the plugins of other packages.
pub fn search(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Search> {
    let _call = begin(py);
    let folders: Vec<PathBuf> = py.import("crossdock._plugins")?.call_method0("folders")?.extract()?;
    let search = paths.into_iter().fold(Search::nowhere(), Search::with_path).environment_of_process();
    Ok(folders.into_iter().fold(search, Search::installed))
}
