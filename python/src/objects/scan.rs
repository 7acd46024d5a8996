//! `Scan`: a description of a table that is read in batches.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::{Batches, Scan as HostScan, Table as HostTable};
use crossdock_arrays::{
    DeviceBatch, NextArray, export_data_stream, export_device_stream, export_schema, field_type_name,
    import_field,
};
use crossdock_memory::Stream;
use crossdock_plugin_api::{CancelFlag, Device, Owned, Result, abi};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow::capsules::{new_capsule, take};
use crate::arrow::export::{export_rows, refuse_unknown};
use crate::objects::files::ReadArguments;
use crate::objects::fragments;
use crate::objects::schema::Schema;
use crate::objects::session::{Session, Shared, with_flag};
use crate::objects::source::{PySource, Raised, handle_truncation};
use crate::objects::table::Table;
use crate::runtime::errors::{KeepException, OrRaise, usage};
use crate::runtime::process::{ProcessLocal, detach};
use crate::runtime::work::{SIGNAL_INTERVAL, detached, interruptible};

/// A description of a table that is read in batches. Each iteration reads the table from its
/// beginning, and returns its batches as tables on the session's device.
///
/// A scan implements the Arrow stream protocols, so that other libraries can read from it batch by
/// batch. A scan of files can be pickled; it is opened again in a session of the process that
/// unpickles it, with the same settings.
///
/// >>> scan = session.scan(folder / "people.arrow", columns=["id"])
/// >>> [batch["id"].to_pylist() for batch in scan]
/// [[1, 2, 3]]
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Scan(KeepException<ProcessLocal<ScanState>>);

struct ScanState {
    scan: HostScan,
    shared: Arc<Shared>,
    /// The flag of the session of `scan`.
    flag: CancelFlag,
    /// Where a file object stores its exception.
    raised: Option<Raised>,
    /// The source and the arguments of a scan that can be pickled.
    pickled: Option<Py<PyTuple>>,
    /// The session, the source and the keyword arguments, for fragments.
    origin: (Py<Session>, Py<PyAny>, Py<PyDict>),
}

pub fn scan(
    of: &Bound<'_, Session>,
    source: &Bound<'_, PyAny>,
    arguments: ReadArguments<'_, '_>,
    (prefetch, batch_rows): (usize, u64),
    fragment: Option<&[u8]>,
    keywords: Bound<'_, PyDict>,
) -> PyResult<Scan> {
    let py = source.py();
    let shared = &of.get().shared()?;
    let (session, flag) = with_flag(shared);
    let mut options = arguments.scan_options(prefetch, batch_rows)?;
    options.read.fragment = fragment.map(Arc::from);
    let origin = (of.clone().unbind(), source.clone().unbind(), keywords.clone().unbind());
    let source = PySource::new("scan", source, false)?;
    let pickled = match &source {
        PySource::Files(files) => {
            // A `pathlib.Path` would change the slashes of a URI.
            let files: Vec<_> = files.iter().map(|file| file.as_os_str()).collect();
            Some(PyTuple::new(py, [files.into_pyobject(py)?.into_any(), keywords.into_any()])?)
        }
        _ => None,
    };
    let host_source = source.of_scan();
    let scan = interruptible(py, &flag, || {
        if options.map {
            handle_truncation()?;
        }
        session.scan(host_source, options)
    });
    let raised = source.raised();
    let scan = keep_raised(&raised, scan)?;
    let pickled = pickled.map(Bound::unbind);
    let state = ScanState { scan, shared: shared.clone(), flag, raised, pickled, origin };
    Ok(Scan(KeepException::new(ProcessLocal::new(state))))
}

/// Returns the exception of a file object instead of the error that it caused.
fn keep_raised<T>(raised: &Option<Raised>, result: PyResult<T>) -> PyResult<T> {
    let raised =
        raised.as_ref().and_then(|raised| raised.lock().unwrap_or_else(PoisonError::into_inner).take());
    match raised {
        Some(error) => Err(error),
        None => result,
    }
}

impl ScanState {
    /// The scan with a cancel flag for one pass.
    fn for_one_pass(&self) -> (HostScan, CancelFlag) {
        if self.scan.is_once() {
            // The input is open already, and has this flag.
            return (self.scan.clone(), self.flag.clone());
        }
        let (session, flag) = with_flag(&self.shared);
        (self.scan.with_session(&session), flag)
    }

    fn table(
        &self,
        py: Python<'_>,
        read: impl FnOnce(HostScan) -> crossdock::Result<HostTable> + Send,
    ) -> PyResult<Table> {
        let (scan, flag) = self.for_one_pass();
        let table = keep_raised(&self.raised, interruptible(py, &flag, || read(scan)))?;
        Ok(Table::new(table, self.shared.clone()))
    }

    fn begin(&self, py: Python<'_>) -> PyResult<(Batches, CancelFlag)> {
        let (scan, flag) = self.for_one_pass();
        Ok((detach(py, || scan.batches()).or_raise()?, flag))
    }

    /// Checks a requested schema. Arrow's protocol does not require the producer to cast the data.
    fn check_requested(&self, requested: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(requested) = requested else { return Ok(()) };
        let requested = import_field(&take::<abi::ArrowSchema>(requested, "requested_schema")?).or_raise()?;
        if !requested.data_type().is_nested() {
            return Err(usage(format!(
                "requested_schema: cannot export a table as {}: cast it before the export or afterwards",
                crossdock_arrays::type_name(requested.data_type())
            )));
        }
        Ok(())
    }
}

impl Scan {
    /// Begins to read the batches. Returns the flag that cancels the work.
    pub fn begin(&self, py: Python<'_>) -> PyResult<(Batches, CancelFlag)> {
        self.0.get()?.begin(py)
    }
}

#[pymethods]
impl Scan {
    /// Names, types and metadata of the columns.
    ///
    /// >>> session.scan(folder / "people.arrow").schema.names
    /// ['id', 'name', 'score']
    #[getter]
    fn schema(&self) -> PyResult<Schema> {
        Ok(Schema(self.0.get()?.scan.schema().clone()))
    }

    /// Number of rows, or None if it is not known before the table is read.
    ///
    /// >>> session.scan(folder / "people.arrow").num_rows
    /// 3
    #[getter]
    fn num_rows(&self) -> PyResult<Option<u64>> {
        Ok(self.0.get()?.scan.n_rows())
    }

    /// The device of the batches.
    ///
    /// >>> session.scan(folder / "people.arrow").device
    /// 'cpu'
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.0.get()?.scan.session().device().to_string())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<ScanIterator> {
        let state = self.0.get()?;
        let (batches, flag) = state.begin(py)?;
        let (shared, raised) = (state.shared.clone(), state.raised.clone());
        let state = IteratorState { batches: Mutex::new(Some(batches)), flag, shared, raised };
        Ok(ScanIterator(KeepException::new(ProcessLocal::new(state))))
    }

    /// Lists parts of the table that can be read independently, also by other processes. Together
    /// they contain each row of the table once, in its order. If the scan has rows or a limit,
    /// parts without requested rows are left out. The source must be files or bytes.
    ///
    /// >>> fragments = session.scan(folder / "people.arrow").fragments()
    /// >>> [fragment.scan().to_table().num_rows for fragment in fragments]
    /// [3]
    fn fragments<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let state = self.0.get()?;
        let (session, source, keywords) = &state.origin;
        if source.bind(py).getattr_opt("read")?.is_some() {
            // A fragment would open the object again, at a position that others move.
            return Err(usage("a scan of a file object has no fragments: pass a path or bytes as source"));
        }
        let (scan, flag) = state.for_one_pass();
        let list = keep_raised(&state.raised, interruptible(py, &flag, || scan.fragments()))?;
        let session = session.bind(py).as_any();
        let settings = session.getattr("_settings")?;
        let fragment = |fragment: crossdock::Fragment| {
            let table = |table: &HostTable| Py::new(py, Table::new(table.clone(), state.shared.clone()));
            let statistics = fragment.statistics().map(table).transpose()?;
            let statistics = statistics.map(|table| table.into_bound(py).into_any());
            fragments::new(session, &settings, source.bind(py), keywords.bind(py), &fragment, statistics)
        };
        list.into_iter().map(fragment).collect()
    }

    /// Reads the whole table.
    ///
    /// >>> session.scan(folder / "people.arrow", limit=2).to_table().num_rows
    /// 2
    fn to_table(&self, py: Python<'_>) -> PyResult<Table> {
        self.0.get()?.table(py, |scan| scan.to_table())
    }

    /// Reads the first `n` rows, and no more of the input than they need.
    ///
    /// >>> session.scan(folder / "people.arrow").head(1)["name"].to_pylist()
    /// ['ann']
    #[pyo3(signature = (n=5))]
    fn head(&self, py: Python<'_>, n: u64) -> PyResult<Table> {
        self.0.get()?.table(py, |scan| scan.head(n))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        new_capsule(py, export_schema(self.0.get()?.scan.schema()).or_raise()?)
    }

    /// Batches in host memory, which are read when the consumer asks for them.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = self.0.get()?;
        state.check_requested(requested_schema)?;
        let next = state.exported(py, Some(Device::CPU))?;
        new_capsule(py, export_data_stream(state.scan.schema().clone(), next))
    }

    /// Batches on the session's device, which are read when the consumer asks for them.
    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        refuse_unknown("__arrow_c_device_stream__", kwargs)?;
        let state = self.0.get()?;
        state.check_requested(requested_schema)?;
        let next = state.exported(py, None)?;
        let device = state.scan.session().device();
        new_capsule(py, export_device_stream(state.scan.schema().clone(), device, next))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let state = self.0.get()?;
        let Some(pickled) = &state.pickled else {
            return Err(PyTypeError::new_err("only a scan of files can be pickled: pass paths as source"));
        };
        let function = py.import("crossdock._scan")?.getattr("unpickle")?;
        let (files, arguments): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pickled.bind(py).extract()?;
        let settings = state.origin.0.bind(py).getattr("_settings")?;
        Ok((function, (settings, files, arguments).into_pyobject(py)?))
    }

    fn __repr__(&self) -> PyResult<String> {
        let schema = self.0.get()?.scan.schema();
        let columns: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| format!("{}: {}", field.name(), field_type_name(field)))
            .collect();
        Ok(format!("crossdock.Scan({})", columns.join(", ")))
    }
}

impl ScanState {
    /// The batches as arrays for an Arrow stream, on `device`; `None`: the session's device.
    fn exported(
        &self,
        py: Python<'_>,
        device: Option<Device>,
    ) -> PyResult<impl FnMut() -> NextArray + Send + 'static> {
        let (batches, _) = self.begin(py)?;
        let mut export =
            Detached(Some(StreamExport { batches, stream: self.scan.session().stream().clone(), device }));
        Ok(move || export.next())
    }
}

/// The source of an exported stream. It is used and dropped without the interpreter's lock, because
/// the scan's thread may need the lock to read a file object.
struct Detached(Option<StreamExport>);

struct StreamExport {
    batches: Batches,
    stream: Stream,
    device: Option<Device>,
}

impl Detached {
    fn next(&mut self) -> NextArray {
        let Some(export) = &mut self.0 else { return Ok(None) };
        let mut next = Ok(None);
        without_lock(|| next = export.next());
        next
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        without_lock(|| drop(self.0.take()));
    }
}

/// Runs `work` without the interpreter's lock, whether this thread holds it or not.
fn without_lock(mut work: impl FnMut() + Send) {
    if Python::try_attach(|py| detach(py, &mut work)).is_none() {
        // The interpreter has ended, so that no other thread needs its lock.
        work();
    }
}

impl StreamExport {
    fn next(&mut self) -> NextArray {
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let batch = batch.map_err(|error| error.to_api_error())?;
        self.export(batch).map(Some)
    }

    fn export(&self, batch: DeviceBatch) -> Result<Owned<abi::ArrowDeviceArray>> {
        let batch = match self.device {
            Some(device) => {
                let batch = batch.move_to(&self.stream, device)?;
                // The protocol for host memory has no event, so the data must be ready when this
                // function returns.
                self.stream.synchronize()?;
                batch
            }
            None => batch,
        };
        export_rows(&batch, &self.stream)
    }
}

/// The batches of a scan, as tables. Several threads may use it; each batch goes to one of them.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct ScanIterator(KeepException<ProcessLocal<IteratorState>>);

struct IteratorState {
    batches: Mutex<Option<Batches>>,
    flag: CancelFlag,
    shared: Arc<Shared>,
    raised: Option<Raised>,
}

/// The result of waiting for the next batch.
enum Step {
    Next(Option<HostTable>),
    /// The batch is not ready yet.
    Pending,
    /// No thread reads ahead.
    MustRead,
}

impl IteratorState {
    /// Returns the next batch. Ctrl-C cancels the wait for it.
    fn next(&self, py: Python<'_>) -> PyResult<Option<HostTable>> {
        loop {
            let step = || {
                let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
                match &*batches {
                    Some(iterator) if !iterator.reads_ahead() => Ok(Step::MustRead),
                    Some(iterator) if !iterator.wait(SIGNAL_INTERVAL) => Ok(Step::Pending),
                    _ => self.take_next(&mut batches).map(Step::Next),
                }
            };
            match detached(py, step)? {
                Step::Next(table) => return Ok(table),
                Step::Pending => py.check_signals().inspect_err(|_| self.flag.cancel())?,
                Step::MustRead => {
                    let read =
                        || self.take_next(&mut self.batches.lock().unwrap_or_else(PoisonError::into_inner));
                    return interruptible(py, &self.flag, read);
                }
            }
        }
    }

    fn take_next(&self, batches: &mut Option<Batches>) -> crossdock::Result<Option<HostTable>> {
        let Some(iterator) = batches.as_mut() else { return Ok(None) };
        let Some(batch) = iterator.next().transpose()? else {
            // The memory and the thread of the scan are no longer needed.
            *batches = None;
            return Ok(None);
        };
        let schema = iterator.schema().clone();
        HostTable::from_batches(&self.shared.session, schema, vec![batch]).map(Some)
    }

    /// Stops reading.
    fn close(&self, py: Python<'_>) {
        self.flag.cancel();
        detach(py, || drop(self.batches.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Drop for IteratorState {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

#[pymethods]
impl ScanIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Table>> {
        let state = self.0.get()?;
        let table = keep_raised(&state.raised, state.next(py))?;
        Ok(table.map(|table| Table::new(table, state.shared.clone())))
    }

    /// Stops reading. The tables stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.close(py);
        Ok(())
    }
}
