//! Tables that other processes open.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::{SharedTable as HostShared, SharingWay, Table as HostTable};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::objects::rebuild::into_python;
use crate::objects::session::Shared;
use crate::runtime::errors::usage;
use crate::runtime::process::ProcessLocal;
use crate::runtime::work::detached;

/// A copy of a table, on its CUDA device or in host memory, that other processes of the same user
/// on this host can open with `Session.open_shared`, until it is closed. A process that has opened
/// it can use it longer, also after this process has ended.
///
/// >>> with table.share() as shared:
/// ...     shared
/// <crossdock.SharedTable open>
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct SharedTable(ProcessLocal<Mutex<Option<HostShared>>>);

impl SharedTable {
    /// Shares a table.
    pub fn new(py: Python<'_>, table: &HostTable) -> PyResult<Self> {
        let shared = detached(py, || table.share())?;
        Ok(Self(ProcessLocal::new(Mutex::new(Some(shared)))))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Option<HostShared>) -> T) -> PyResult<T> {
        Ok(f(&mut self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl SharedTable {
    /// The argument of `Session.open_shared` in the other process. It is no copy of the table. Keep
    /// it secret from other users, as the table itself.
    ///
    /// >>> with table.share() as shared:
    /// ...     type(shared.description)
    /// <class 'bytes'>
    #[getter]
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes =
            self.with(|shared| shared.as_ref().map(|shared| PyBytes::new(py, shared.description())))?;
        bytes.ok_or_else(|| usage("the shared table is closed"))
    }

    /// Withdraws the table. Processes that have not opened it yet get an error. Closing twice has
    /// no effect.
    ///
    /// >>> shared = table.share()
    /// >>> shared.close()
    fn close(&self) -> PyResult<()> {
        self.with(|shared| drop(shared.take()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close()
    }

    fn __repr__(&self) -> PyResult<String> {
        let state = self.with(|shared| if shared.is_some() { "open" } else { "closed" })?;
        Ok(format!("<crossdock.SharedTable {state}>"))
    }
}

/// Opens a table or a column that another process shares.
pub fn open<'py>(shared: &Arc<Shared>, description: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = description.py();
    let bytes = PyBuffer::<u8>::get(description)?.to_vec(py)?;
    let rebuilt = detached(py, || shared.session.open_shared(&bytes))?;
    into_python(py, rebuilt, Some(shared))
}

/// Why other processes cannot open the table in memory of its device; None if they can.
pub fn obstacle(py: Python<'_>, table: &HostTable) -> Option<String> {
    match crate::runtime::process::detach(py, || table.sharing_way()) {
        SharingWay::Device => None,
        SharingWay::Host { reason } => Some(reason),
    }
}
