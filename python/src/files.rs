//! Tables from and to files, file objects and bytes.

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

use crate::bytes::{BufferSource, FileSink};
use crate::errors::usage;
use crate::path::FsPath;
use crate::process::begin;
use crate::progress::Progress;
use crate::session::{Shared, with_flag};
use crate::table::Table;
use crate::work::{LONG_BYTES, detached, interruptible};

/// Where `read_ipc` reads.
enum Given<'py> {
    Path(PathBuf),
    Bytes(BufferSource),
    /// A file object, with what it has from where it stood on; and that place, if it can go back there.
    Object {
        bytes: BufferSource,
        object: Bound<'py, PyAny>,
        start: Option<u64>,
    },
}

/// A path, an object of bytes, or a file object, which is read to its end.
fn given<'py>(source: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
    let _call = begin(source.py());
    // Bytes are the content here, and no path.
    if !source.is_instance_of::<PyBytes>()
        && let Ok(FsPath(path)) = source.extract()
    {
        return Ok(Given::Path(path));
    }
    if let Some(read) = source.getattr_opt("read")? {
        let is_seekable = match source.getattr_opt("seekable")? {
            Some(seekable) => seekable.call0()?.is_truthy()?,
            None => false,
        };
        let start = if is_seekable { Some(source.call_method0("tell")?.extract()?) } else { None };
        let bytes = BufferSource::new(&read.call0()?)?;
        return Ok(Given::Object { bytes, object: source.clone(), start });
    }
    BufferSource::new(source).map(Given::Bytes).map_err(|_| {
        let kind = source.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(format!("read_ipc: a {kind} is no path, no file object and no bytes"))
    })
}

pub fn read_ipc(shared: &Arc<Shared>, source: &Bound<'_, PyAny>, map: bool) -> PyResult<Table> {
    let py = source.py();
    let (session, flag) = with_flag(shared);
    let table = match given(source)? {
        Given::Path(path) => {
            let long = is_long(&path);
            let read = || HostTable::from_ipc_input(&session, open(path, &flag, map)?);
            if long { interruptible(py, &flag, read) } else { detached(py, read) }
        }
        Given::Bytes(source) => {
            let input = Input::Bytes(Arc::new(source));
            detached(py, || HostTable::from_ipc_input(&session, input))
        }
        Given::Object { bytes, object, start } => {
            let used = Arc::new(AtomicU64::new(0));
            let heard = used.clone();
            let listener = move |done, _| heard.store(done, Ordering::Relaxed);
            let input = Input::Bytes(Arc::new(bytes));
            let read = || HostTable::from_ipc_input_heard(&session, input, Some(Arc::new(listener)));
            let table = detached(py, read);
            if let Some(start) = start {
                // It stands after what the table was made of, and where it stood if nothing was.
                let used = if table.is_ok() { used.load(Ordering::Relaxed) } else { 0 };
                object.call_method1("seek", (start + used,))?;
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
    // Without a handler, whoever truncates the file ends this process.
    handle_sigbus().map_err(|source| crossdock::Error::Io { what: "cannot handle SIGBUS".into(), source })?;
    Ok(input)
}

/// Whether a path is read for long: a large file, or what is no file, and may have nothing to read for now.
fn is_long(path: &PathBuf) -> bool {
    std::fs::metadata(path).is_ok_and(|there| !there.is_file() || there.len() >= LONG_BYTES)
}

/// Options of a format, which are texts: strings as they are, booleans as `true` and `false`, and numbers as Python writes them.
pub fn options(of: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    for (key, value) in of.into_iter().flatten() {
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
                "option '{key}': expected a str, bool or number, got a {kind}"
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
    let told = Options::new().with("compression", compression.unwrap_or("none"));
    let write = WriteOptions { to: Some(form.name().into()), options: told };
    if let Some(path) = path {
        return to_path(to.py(), table, shared, path, &write, progress);
    }
    if to.getattr_opt("write")?.is_none() {
        let kind = to.get_type().name()?;
        return Err(PyTypeError::new_err(format!("write_ipc: a {kind} is no path and has no method write")));
    }
    let (sink, raised) = FileSink::new(to.clone().unbind());
    let result = work(to.py(), table, shared, progress, true, |_| Ok(Output::to(sink)), &write);
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
    let long = std::fs::metadata(&path).is_ok_and(|there| !there.is_file());
    work(py, table, shared, progress, long, |flag| Output::create(path, flag), write)
}

/// Writes the table to what `open` opens. `long`: it may take long, whatever the table's size.
fn work(
    py: Python<'_>,
    table: &HostTable,
    shared: &Arc<Shared>,
    progress: Option<&Bound<'_, PyAny>>,
    long: bool,
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
            done += batch.bytes();
            if let Some(listener) = &listener {
                listener(done, total);
            }
        }
        writer.finish().map(drop)
    };
    let result = match long || table.bytes() >= LONG_BYTES {
        true => interruptible(py, &flag, work),
        false => detached(py, work),
    };
    progress.end(result)
}
