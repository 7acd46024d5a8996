//! Reads tables from files, file objects and bytes, and writes them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crossdock::sink::Output;
use crossdock::{IpcForm, ReadOptions, ScanOptions, ScanSource, Table as HostTable, WriteOptions};
use crossdock_plugin_api::{CancelFlag, Options};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::dlpack::import::schema_of;
use crate::objects::bytes::{FileSink, is_bytes_io};
use crate::objects::request::RequestArguments;
use crate::objects::session::{Shared, with_flag};
use crate::objects::source::{PySource, handle_truncation, open};
use crate::objects::table::Table;
use crate::runtime::errors::usage;
use crate::runtime::path::FsPath;
use crate::runtime::progress::Progress;
use crate::runtime::work::{MIN_INTERRUPTIBLE_BYTES, detached, interruptible};

pub fn read_ipc(
    shared: &Arc<Shared>,
    source: &Bound<'_, PyAny>,
    request: &RequestArguments<'_, '_>,
    map: bool,
) -> PyResult<Table> {
    let py = source.py();
    let (session, flag) = with_flag(shared);
    let mut options = request.options()?;
    let source = PySource::new("read_ipc", source, true)?;
    options.progress = source.progress(None);
    let (may_block, host_source) = (source.may_block(), source.of_scan());
    let read = || {
        let input = match &host_source {
            ScanSource::Input(input) => input.clone(),
            ScanSource::Files(files) => {
                open(&session, files.first().map_or(Path::new(""), |path| path), map)?
            }
        };
        HostTable::from_ipc_input_with(&session, input, options)
    };
    let table = if may_block { interruptible(py, &flag, read) } else { detached(py, read) };
    Ok(Table::new(source.end(table)?, shared.clone()))
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

/// The arguments of `read` and `scan` that both have.
pub struct ReadArguments<'a, 'py> {
    pub format: Option<String>,
    pub request: RequestArguments<'a, 'py>,
    pub schema: Option<&'a Bound<'py, PyAny>>,
    pub map: bool,
    pub options: Options,
    /// The options of the plugin that opens URIs.
    pub storage: Options,
}

impl ReadArguments<'_, '_> {
    /// # Errors
    /// UsageError that names the argument.
    pub fn scan_options(self, prefetch: usize, batch_rows: u64) -> PyResult<ScanOptions> {
        let Self { format, request, schema, map, options, storage } = self;
        let schema = schema.map(schema_of).transpose()?;
        let read = ReadOptions { from: format, options, batch_rows, ..request.options()? };
        Ok(ScanOptions { read, schema, prefetch, map, storage })
    }
}

pub fn read(
    source: &Bound<'_, PyAny>,
    shared: &Arc<Shared>,
    arguments: ReadArguments<'_, '_>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Table> {
    let py = source.py();
    let (session, flag) = with_flag(shared);
    let progress = Progress::new(progress)?;
    let mut options = arguments.scan_options(0, 0)?;
    let source = PySource::new("read", source, false)?;
    options.read.progress = source.progress(progress.listener(&flag));
    let host_source = source.of_scan();
    let result = interruptible(py, &flag, || {
        if options.map {
            handle_truncation()?;
        }
        session.read_table(host_source, options)
    });
    Ok(Table::new(source.end(progress.end(result))?, shared.clone()))
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
    // The `write` of any other object may block.
    let may_block = !is_bytes_io(to)?;
    let (sink, raised) = FileSink::new(to)?;
    let result = write_to(to.py(), table, shared, progress, may_block, |_| Ok(Output::to(sink)), &write);
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
        writer.write_all(table.batches(), |batch| {
            done += batch.buffer_bytes();
            if let Some(listener) = &listener {
                listener(done, total);
            }
        })?;
        writer.finish().map(drop)
    };
    let result = match may_block || table.bytes() >= MIN_INTERRUPTIBLE_BYTES {
        true => interruptible(py, &flag, work),
        false => detached(py, work),
    };
    progress.end(result)
}
