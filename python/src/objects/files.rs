//! Reads tables from files, file objects and bytes, and writes them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crossdock::sink::Output;
use crossdock::source::Input;
use crossdock::truncated::handle_sigbus;
use crossdock::{IpcForm, ReadOptions, Table as HostTable, WriteOptions};
use crossdock_plugin_api::{CancelFlag, Options};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};

use crate::objects::bytes::{BufferSource, FileSink};
use crate::objects::session::{Shared, with_flag};
use crate::objects::table::Table;
use crate::runtime::errors::usage;
use crate::runtime::path::FsPath;
use crate::runtime::process::begin;
use crate::runtime::progress::Progress;
use crate::runtime::work::{MIN_INTERRUPTIBLE_BYTES, detached, interruptible};

/// The source of `read_ipc`.
enum IpcSource<'py> {
    Path(PathBuf),
    Bytes(BufferSource),
    /// A file object, the bytes from its position to its end, and its position if the object is
    /// seekable.
    Object {
        bytes: BufferSource,
        object: Bound<'py, PyAny>,
        start: Option<u64>,
    },
}

/// Converts the argument `source`. A file object is read to its end.
fn ipc_source<'py>(source: &Bound<'py, PyAny>) -> PyResult<IpcSource<'py>> {
    let _call = begin(source.py());
    // A `bytes` object contains the bytes of a file here, although it could also be a path.
    if !source.is_instance_of::<PyBytes>()
        && let Ok(FsPath(path)) = source.extract()
    {
        return Ok(IpcSource::Path(path));
    }
    if let Some(read) = source.getattr_opt("read")? {
        let is_seekable = match source.getattr_opt("seekable")? {
            Some(seekable) => seekable.call0()?.is_truthy()?,
            None => false,
        };
        let start = if is_seekable { Some(source.call_method0("tell")?.extract()?) } else { None };
        let bytes = BufferSource::new(&read.call0()?)?;
        return Ok(IpcSource::Object { bytes, object: source.clone(), start });
    }
    BufferSource::new(source).map(IpcSource::Bytes).map_err(|_| {
        let kind = source.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "read_ipc: expected a path, a file object or a bytes-like object, got {kind}"
        ))
    })
}

pub fn read_ipc(shared: &Arc<Shared>, source: &Bound<'_, PyAny>, map: bool) -> PyResult<Table> {
    let py = source.py();
    let (session, flag) = with_flag(shared);
    let table = match ipc_source(source)? {
        IpcSource::Path(path) => {
            let may_block = may_block(&path);
            let read = || HostTable::from_ipc_input(&session, open(path, &flag, map)?);
            if may_block { interruptible(py, &flag, read) } else { detached(py, read) }
        }
        IpcSource::Bytes(source) => {
            let input = Input::Bytes(Arc::new(source));
            detached(py, || HostTable::from_ipc_input(&session, input))
        }
        IpcSource::Object { bytes, object, start } => {
            let bytes_used = Arc::new(AtomicU64::new(0));
            let progress = bytes_used.clone();
            let listener = move |done, _| progress.store(done, Ordering::Relaxed);
            let input = Input::Bytes(Arc::new(bytes));
            let read = || HostTable::from_ipc_input_with_progress(&session, input, Some(Arc::new(listener)));
            let table = detached(py, read);
            if let Some(start) = start {
                // Sets the position to the end of the table. If the table could not be read,
                // restores the position.
                let bytes_used = if table.is_ok() { bytes_used.load(Ordering::Relaxed) } else { 0 };
                object.call_method1("seek", (start + bytes_used,))?;
            }
            table
        }
    };
    Ok(Table::new(table?, shared.clone()))
}

fn open(path: PathBuf, flag: &CancelFlag, map: bool) -> crossdock::Result<Input> {
    let input = Input::open(path, flag)?;
    if !map {
        return Ok(input.without_mapping());
    }
    // Without a handler, a program that truncates the mapped file would terminate this process.
    handle_sigbus().map_err(|source| crossdock::Error::Io {
        what: "cannot handle SIGBUS".into(),
        path: None,
        source,
    })?;
    Ok(input)
}

/// Returns whether reading may take long, because the file is large, or is a pipe, a terminal or
/// another special file.
fn may_block(path: &PathBuf) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() >= MIN_INTERRUPTIBLE_BYTES)
}

/// Converts keyword arguments into options of a format, which are strings: booleans become "true"
/// and "false", numbers their `str`.
pub fn options(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    for (key, value) in arguments.into_iter().flatten() {
        let key: String = key.extract()?;
        let text = if let Ok(is_true) = value.cast::<PyBool>() {
            is_true.is_true().to_string()
        } else if value.is_instance_of::<PyString>() {
            value.extract()?
        } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            value.str()?.extract()?
        } else {
            let kind = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
            return Err(PyTypeError::new_err(format!(
                "option '{key}': expected str, bool or number, got {kind}"
            )));
        };
        options = options.with(key, text);
    }
    Ok(options)
}

pub fn read(
    py: Python<'_>,
    shared: &Arc<Shared>,
    path: PathBuf,
    format: Option<String>,
    map: bool,
    progress: Option<&Bound<'_, PyAny>>,
    options: Options,
) -> PyResult<Table> {
    let (session, flag) = with_flag(shared);
    let progress = Progress::new(progress)?;
    let read = ReadOptions { from: format, options, progress: progress.listener(&flag) };
    let result = interruptible(py, &flag, || {
        HostTable::from_reader(&session, session.read(open(path, &flag, map)?, &read)?)
    });
    Ok(Table::new(progress.end(result)?, shared.clone()))
}

pub fn write_ipc(
    table: &HostTable,
    shared: &Arc<Shared>,
    to: &Bound<'_, PyAny>,
    compression: Option<&str>,
    form: Option<&str>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let path = to.extract().ok().map(|FsPath(path)| path);
    let form = match form {
        Some("file") => IpcForm::File,
        Some("stream") => IpcForm::Stream,
        Some(other) => return Err(usage(format!("form={other:?}: expected \"file\" or \"stream\""))),
        None if path.as_ref().is_some_and(|path| path.extension().is_some_and(|e| e == "arrows")) => {
            IpcForm::Stream
        }
        None => IpcForm::File,
    };
    let options = Options::new().with("compression", compression.unwrap_or("none"));
    let write = WriteOptions { to: Some(form.name().into()), options };
    if let Some(path) = path {
        return to_path(to.py(), table, shared, path, &write, progress);
    }
    if to.getattr_opt("write")?.is_none() {
        let kind = to.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "write_ipc: expected a path or an object with a method write, got {kind}"
        )));
    }
    let (sink, raised) = FileSink::new(to.clone().unbind());
    let result = write_to(to.py(), table, shared, progress, true, |_| Ok(Output::to(sink)), &write);
    match raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => result,
    }
}

pub fn write(
    py: Python<'_>,
    table: &HostTable,
    shared: &Arc<Shared>,
    path: PathBuf,
    format: Option<String>,
    progress: Option<&Bound<'_, PyAny>>,
    options: Options,
) -> PyResult<()> {
    to_path(py, table, shared, path, &WriteOptions { to: format, options }, progress)
}

fn to_path(
    py: Python<'_>,
    table: &HostTable,
    shared: &Arc<Shared>,
    path: PathBuf,
    write: &WriteOptions,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let may_block = std::fs::metadata(&path).is_ok_and(|file| !file.is_file());
    write_to(py, table, shared, progress, may_block, |flag| Output::create(path, flag), write)
}

/// Writes the table to the output that `open` returns. `may_block`: whether a write may block even
/// if the table is small.
fn write_to(
    py: Python<'_>,
    table: &HostTable,
    shared: &Arc<Shared>,
    progress: Option<&Bound<'_, PyAny>>,
    may_block: bool,
    open: impl FnOnce(&CancelFlag) -> crossdock::Result<Output> + Send,
    options: &WriteOptions,
) -> PyResult<()> {
    let (session, flag) = with_flag(shared);
    let progress = Progress::new(progress)?;
    let listener = progress.listener(&flag);
    let work = || {
        let total = table.bytes();
        let mut done = 0;
        let mut writer = session.write(open(&flag)?, table.schema(), options)?;
        for batch in table.batches() {
            writer.write(batch.clone())?;
            done += batch.buffer_bytes();
            if let Some(listener) = &listener {
                listener(done, total);
            }
        }
        writer.finish().map(drop)
    };
    let result = match may_block || table.bytes() >= MIN_INTERRUPTIBLE_BYTES {
        true => interruptible(py, &flag, work),
        false => detached(py, work),
    };
    progress.end(result)
}
