//! `Writer`: an output to which batches are written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{Field as ArrowField, SchemaRef};
use crossdock::sink::Output;
use crossdock::{Batches, Table as HostTable, WriteOptions, Writer as HostWriter};
use crossdock_arrays::{Arrays, DataStream, DeviceBatch, DeviceStream, import_field};
use crossdock_plugin_api::{CancelFlag, Options};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::arrow::capsules::{name_of, take};
use crate::arrow::import::{Names, from_arrow};
use crate::objects::scan::Scan;
use crate::objects::session::{Shared, with_flag};
use crate::objects::table::Table;
use crate::runtime::errors::{KeepException, OrRaise, usage};
use crate::runtime::path::FsPath;
use crate::runtime::process::{ProcessLocal, detach};
use crate::runtime::work::interruptible;

/// An output to which tables are written. The file appears when the writer is closed, complete or
/// not at all.
///
/// A writer is a context manager: the end of the block closes it, an exception discards it.
///
/// >>> with session.writer(folder / "copy.arrow", table.schema) as writer:
/// ...     for batch in session.scan(folder / "people.arrow"):
/// ...         writer.write(batch)
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Writer(KeepException<ProcessLocal<WriterState>>);

struct WriterState {
    writer: Mutex<Option<HostWriter>>,
    flag: CancelFlag,
    shared: Arc<Shared>,
}

/// Opens a writer for batches with `schema`.
pub fn open(
    py: Python<'_>,
    shared: &Arc<Shared>,
    FsPath(path): FsPath,
    schema: SchemaRef,
    format: Option<String>,
    options: Options,
) -> PyResult<Writer> {
    let (session, flag) = with_flag(shared);
    let options = WriteOptions { to: format, options };
    let writer = interruptible(py, &flag, || session.write(Output::create(path, &flag)?, &schema, &options))?;
    let state = WriterState { writer: Mutex::new(Some(writer)), flag, shared: shared.clone() };
    Ok(Writer(KeepException::new(ProcessLocal::new(state))))
}

/// Writes the batches of `source` to a file.
pub fn write(
    shared: &Arc<Shared>,
    source: &Bound<'_, PyAny>,
    path: FsPath,
    format: Option<String>,
    options: Options,
) -> PyResult<()> {
    let py = source.py();
    let mut batches = Source::new(shared, source)?;
    let writer = open(py, shared, path, batches.schema()?, format, options)?;
    let state = writer.0.get()?;
    state.write(py, &mut batches)?;
    state.close(py)
}

/// The batches that a call of Python passes.
enum Source {
    Table(HostTable),
    Scan(Batches, CancelFlag),
    Stream(Box<dyn Arrays>, ArrowField),
}

impl Source {
    /// # Errors
    /// TypeError if the object is not a table, a scan or a stream of batches.
    fn new(shared: &Arc<Shared>, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = source.py();
        if let Ok(table) = source.cast::<Table>() {
            return Ok(Self::Table(table.get().table()?.clone()));
        }
        if let Ok(scan) = source.cast::<Scan>() {
            let (batches, flag) = scan.get().begin(py)?;
            return Ok(Self::Scan(batches, flag));
        }
        for protocol in ["__arrow_c_device_stream__", "__arrow_c_stream__"] {
            let Some(method) = source.getattr_opt(protocol)? else { continue };
            let capsule = method.call0()?;
            // The producer may compute or read files in these calls, so the interpreter's lock is
            // released.
            if name_of(&capsule).as_deref() == Some("arrow_array_stream") {
                let mut stream = DataStream::new(take(&capsule, protocol)?);
                let schema = detach(py, || stream.schema()).or_raise()?;
                return Ok(Self::Stream(Box::new(stream), import_field(&schema).or_raise()?));
            }
            let mut stream = DeviceStream::new(take(&capsule, protocol)?);
            let schema = detach(py, || stream.schema()).or_raise()?;
            return Ok(Self::Stream(Box::new(stream), import_field(&schema).or_raise()?));
        }
        // Other objects, such as a record batch, become a table.
        let imported = from_arrow(shared, source, None, Some(false), Names::Strict)?;
        match imported.cast::<Table>() {
            Ok(table) => Ok(Self::Table(table.get().table()?.clone())),
            Err(_) => Err(PyTypeError::new_err("write: expected a table or a stream of batches")),
        }
    }

    fn schema(&self) -> PyResult<SchemaRef> {
        match self {
            Self::Table(table) => Ok(table.schema().clone()),
            Self::Scan(batches, _) => Ok(batches.schema().clone()),
            Self::Stream(_, field) => match field.data_type() {
                arrow_schema::DataType::Struct(fields) => {
                    let schema = arrow_schema::Schema::new(fields.clone());
                    Ok(Arc::new(schema.with_metadata(field.metadata().clone())))
                }
                other => Err(usage(format!("write: expected a stream of structs, got {other}"))),
            },
        }
    }

    /// Passes the batches to `write`.
    fn for_each(
        &mut self,
        shared: &Shared,
        flag: &CancelFlag,
        mut write: impl FnMut(&[DeviceBatch]) -> crossdock::Result<()>,
    ) -> crossdock::Result<()> {
        match self {
            Self::Table(table) => write(table.batches()),
            Self::Scan(batches, _) => batches.try_for_each(|batch| write(&[batch?])),
            Self::Stream(arrays, field) => {
                let session = shared.session.with_cancel_flag(flag.clone());
                let failed =
                    |source| crossdock::Error::Data { what: "cannot read the stream".into(), source };
                while let Some(array) = arrays.next().map_err(failed)? {
                    let mut one = VecDeque::from([array]);
                    let table = HostTable::from_device_arrays(&session, field.clone(), &mut one)?;
                    write(table.batches())?;
                }
                Ok(())
            }
        }
    }
}

impl WriterState {
    fn write(&self, py: Python<'_>, source: &mut Source) -> PyResult<()> {
        interruptible(py, &self.flag, || {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(writer) = writer.as_mut() else {
                return Err(crossdock::Error::Usage("the writer is closed: open another one".into()));
            };
            let result =
                source.for_each(&self.shared, &self.flag, |batches| writer.write_all(batches, |_| ()));
            if let (Source::Scan(_, flag), Err(_)) = (&*source, &result) {
                flag.cancel();
            }
            result
        })
    }

    /// Finishes the output. Closing twice has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let writer = detach(py, || self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
        match writer {
            Some(writer) => interruptible(py, &self.flag, || writer.finish().map(drop)),
            None => Ok(()),
        }
    }

    fn discard(&self, py: Python<'_>) {
        detach(py, || drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

#[pymethods]
impl Writer {
    /// Writes a table, the batches of a scan, or the batches of another object with an Arrow
    /// protocol. They must have the writer's schema.
    ///
    /// >>> with session.writer(folder / "copy.arrow", table.schema) as writer:
    /// ...     writer.write(table)
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = self.0.get()?;
        state.write(data.py(), &mut Source::new(&state.shared, data)?)
    }

    /// Finishes the output: the file appears. Closing twice has no effect.
    ///
    /// >>> writer = session.writer(folder / "copy.arrow", table.schema)
    /// >>> writer.write(table)
    /// >>> writer.close()
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.close(py)
    }

    /// Discards everything that was written.
    ///
    /// >>> writer = session.writer(folder / "copy.arrow", table.schema)
    /// >>> writer.discard()
    /// >>> (folder / "copy.arrow").exists()
    /// False
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.discard(py);
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() { self.close(py) } else { self.discard(py) }
    }
}
