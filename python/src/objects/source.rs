//! Converts the argument `source` of the reading functions.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock::source::Input;
use crossdock::truncated::handle_sigbus;
use crossdock::{ScanSource, Session, scheme_of};
use crossdock_plugin_api::{Options, Progress};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::objects::bytes::{BufferSource, FileSource};
use crate::runtime::path::FsPath;
use crate::runtime::process::begin;
use crate::runtime::work::MIN_INTERRUPTIBLE_BYTES;

/// The source of a read or a scan.
pub enum PySource<'py> {
    Files(Vec<PathBuf>),
    Bytes(Arc<BufferSource>),
    Object(FileObject<'py>),
}

/// A file object, from its position to its end.
pub struct FileObject<'py> {
    object: Bound<'py, PyAny>,
    source: Object,
    /// The position of a seekable object.
    start: Option<u64>,
    /// The number of bytes that the table was read from.
    used: Arc<AtomicU64>,
}

enum Object {
    /// A seekable object, which is read in ranges.
    Ranges(Arc<FileSource>),
    /// The bytes of an object that is not seekable.
    Bytes(Arc<BufferSource>),
}

impl<'py> PySource<'py> {
    /// Converts the argument `source` of `function`. An object that is not seekable is read to its
    /// end. `is_path`: whether a path is one file, and not a pattern or a folder.
    ///
    /// # Errors
    /// TypeError for an object of another type; the exceptions of a file object.
    pub fn new(function: &str, source: &Bound<'py, PyAny>, is_path: bool) -> PyResult<Self> {
        let _call = begin(source.py());
        // `bytes` are file contents here, although they could be a path.
        if !source.is_instance_of::<PyBytes>() {
            if is_path && let Ok(FsPath(path)) = source.extract() {
                return Ok(Self::Files(vec![path]));
            }
            if !is_path && let Some(files) = files_of(source)? {
                return Ok(Self::Files(files));
            }
        }
        if source.getattr_opt("read")?.is_some() {
            return FileObject::new(source).map(Self::Object);
        }
        BufferSource::new(source).map(|bytes| Self::Bytes(Arc::new(bytes))).map_err(|_| {
            let kind = source.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
            let expected = if is_path { "a path" } else { "a path, a list of paths" };
            PyTypeError::new_err(format!(
                "{function}: expected {expected}, a file object or a bytes-like object, got {kind}"
            ))
        })
    }

    /// Returns whether reading may take long: the source is large, or it is a pipe, a terminal or
    /// another special file.
    pub fn may_block(&self) -> bool {
        match self {
            Self::Files(files) => files.len() != 1 || files.iter().any(|path| may_block(path)),
            // Python code may do anything.
            Self::Object(_) => true,
            Self::Bytes(_) => false,
        }
    }

    /// The source for the host.
    pub fn of_scan(&self) -> ScanSource {
        match self {
            Self::Files(files) => ScanSource::Files(files.clone()),
            Self::Bytes(bytes) => ScanSource::Input(Input::Bytes(bytes.clone())),
            Self::Object(file) => ScanSource::Input(file.input()),
        }
    }

    /// Returns a listener that observes how many bytes of a file object a read uses.
    pub fn progress(&self, also: Option<Arc<Progress>>) -> Option<Arc<Progress>> {
        let Self::Object(file) = self else { return also };
        let used = file.used.clone();
        Some(Arc::new(move |done, total| {
            used.store(done, Ordering::Relaxed);
            if let Some(also) = &also {
                also(done, total);
            }
        }))
    }

    /// Ends a read: moves a seekable file object to the end of the table, or back to its start if
    /// the read failed. An exception of the object replaces the error that it caused.
    pub fn end<T>(&self, result: PyResult<T>) -> PyResult<T> {
        let Self::Object(file) = self else { return result };
        let raised = file.raised();
        if let Some(start) = file.start {
            let is_read = result.is_ok() && raised.is_none();
            let used = if is_read { file.used.load(Ordering::Relaxed) } else { 0 };
            let moved = file.object.call_method1("seek", (start + used,));
            // An object that failed before may fail again, but its first exception is raised.
            if is_read {
                moved?;
            }
        }
        match raised {
            Some(raised) => Err(raised),
            None => result,
        }
    }

    /// The function that returns the exception of a file object, if it has raised one since the
    /// last call.
    pub fn raised(&self) -> Option<Raised> {
        match self {
            Self::Object(FileObject { source: Object::Ranges(source), .. }) => Some(source.raised()),
            _ => None,
        }
    }
}

/// Where a file object stores its exception.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

impl<'py> FileObject<'py> {
    fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let is_seekable = match object.getattr_opt("seekable")? {
            Some(seekable) => seekable.call0()?.is_truthy()?,
            None => false,
        };
        let (source, start) = if is_seekable {
            let start: u64 = object.call_method0("tell")?.extract()?;
            // Some objects return nothing from `seek`.
            object.call_method1("seek", (0, 2))?;
            let end: u64 = object.call_method0("tell")?.extract()?;
            object.call_method1("seek", (start,))?;
            let source = FileSource::new(object.clone().unbind(), start, end.saturating_sub(start));
            (Object::Ranges(Arc::new(source)), Some(start))
        } else {
            (Object::Bytes(Arc::new(BufferSource::new(&object.call_method0("read")?)?)), None)
        };
        Ok(Self { object: object.clone(), source, start, used: Arc::default() })
    }

    fn input(&self) -> Input {
        match &self.source {
            Object::Ranges(source) => Input::Bytes(source.clone()),
            Object::Bytes(bytes) => Input::Bytes(bytes.clone()),
        }
    }

    fn raised(&self) -> Option<PyErr> {
        match &self.source {
            Object::Ranges(source) => source.raised().lock().unwrap_or_else(PoisonError::into_inner).take(),
            Object::Bytes(_) => None,
        }
    }
}

/// The files of a path, a folder, a pattern or a list.
fn files_of(source: &Bound<'_, PyAny>) -> PyResult<Option<Vec<PathBuf>>> {
    let files = source.py().import("crossdock._scan")?.call_method1("files", (source,))?;
    let Ok(files) = files.cast::<PyList>() else { return Ok(None) };
    files.iter().map(|file| file.extract().map(|FsPath(path)| path)).collect::<PyResult<_>>().map(Some)
}

/// A path that does not exist may be a URI.
fn may_block(path: &Path) -> bool {
    let is_uri = || path.to_str().is_some_and(|text| scheme_of(text).is_some());
    is_uri()
        || std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() >= MIN_INTERRUPTIBLE_BYTES)
}

/// Opens a path for the session.
pub fn open(session: &Session, path: &Path, map: bool) -> crossdock::Result<Input> {
    let input = session.open_input(path, &Options::new())?;
    if !map {
        return Ok(input.without_mapping());
    }
    handle_truncation()?;
    Ok(input)
}

/// Without a handler, a program that truncates a mapped file would terminate this process.
pub fn handle_truncation() -> crossdock::Result<()> {
    handle_sigbus().map_err(|source| crossdock::Error::Io {
        what: "cannot handle SIGBUS".into(),
        path: None,
        source,
    })
}
