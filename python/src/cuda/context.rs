//! `DeviceContext`: allocates and imports memory of one CUDA device.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock::DeviceParts;
use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Device, abi};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cuda;
use crate::cuda::allocation::Allocation;
use crate::cuda::array_interface::OwnedObject;
use crate::cuda::host_buffer::HostBuffer;
use crate::cuda::memory::DeviceMemory;
use crate::dlpack::producer::LEGACY_STREAM;
use crate::objects::column::Column;
use crate::objects::rebuild::into_python;
use crate::objects::session::{Session, Shared};
use crate::objects::table::Table;
use crate::runtime::errors::{Kind, OrRaise, raise, usage};
use crate::runtime::process::{ProcessLocal, detach};
use crate::runtime::work::detached;

/// The account of the ledger.
const ACCOUNT: &str = "cuda buffers";

/// A session's CUDA device and its streams. All work on its buffers is submitted to the session's
/// stream. External libraries use the legacy default stream, unless they received the handle of
/// another stream.
pub struct DeviceState {
    pub shared: Arc<Shared>,
    pub account: Arc<Account>,
    pub stream: Stream,
    legacy: Stream,
}

impl DeviceState {
    fn new(shared: Arc<Shared>) -> PyResult<Self> {
        let stream = shared.session.stream().clone();
        let device = stream.device();
        if device.r#type != abi::DEVICE_CUDA {
            return Err(usage(format!(
                "the session is on {device}, expected a CUDA device, such as Session(\"cuda:0\")"
            )));
        }
        let account = shared.session.host().backend().account(ACCOUNT);
        // SAFETY: the legacy default stream exists as long as its context.
        let legacy = unsafe { stream.memory().adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        Ok(Self { shared, account, stream, legacy: legacy.or_raise()? })
    }

    pub fn device(&self) -> Device {
        self.stream.device()
    }

    pub fn backend(&self) -> &Backend {
        self.shared.session.host().backend()
    }

    /// Makes the session's stream wait for the work submitted to the legacy default stream so far,
    /// which itself waits for all blocking streams.
    pub fn wait_for_legacy(&self) -> crossdock_plugin_api::Result<()> {
        self.stream.wait(&self.legacy.record()?)
    }

    /// Makes the legacy default stream wait for the work submitted to the session's stream so far.
    pub fn make_legacy_wait(&self) -> crossdock_plugin_api::Result<()> {
        self.legacy.wait(&self.stream.record()?)
    }
}

/// Returns the number of CUDA devices.
///
/// # Errors
/// DeviceError if there is no driver.
#[pyfunction]
pub fn cuda_device_count(py: Python<'_>) -> PyResult<usize> {
    let count = detach(py, || {
        let backend = Backend::builder().build();
        backend.cuda().map(|presence| presence.devices.len()).map_err(ToString::to_string)
    });
    count.map_err(|missing| raise(Kind::Device, missing))
}

/// The header of a table or a column on a CUDA device, and one copy of all its buffers on this
/// device.
#[pyfunction]
pub fn device_parts<'py>(object: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyBytes>, DeviceMemory)> {
    let py = object.py();
    let (parts, shared) = match object.cast::<Column>() {
        Ok(column) => {
            let (table, shared) = (column.get().table()?, column.get().shared()?);
            (detached(py, || table.column_to_device_parts())?, shared)
        }
        Err(_) => {
            let table = object.cast::<Table>()?.get();
            let (table, shared) = (table.table()?, table.shared()?);
            (detached(py, || table.to_device_parts())?, shared)
        }
    };
    let state = Arc::new(DeviceState::new(shared.clone())?);
    state.stream.wait(parts.buffer.ready()).or_raise()?;
    // The memory is a copy, which only the caller has.
    Ok((PyBytes::new(py, &parts.header), DeviceMemory::new(Allocation::new(state, parts.buffer, true))))
}

/// The state of `crossdock.cuda.Context`.
#[pyclass(frozen, module = "crossdock._native")]
pub struct DeviceContext(ProcessLocal<Arc<DeviceState>>);

impl DeviceContext {
    /// # Errors
    /// UsageError in a forked child.
    fn state(&self) -> PyResult<&Arc<DeviceState>> {
        self.0.get()
    }
}

#[pymethods]
impl DeviceContext {
    #[new]
    fn new(session: &Session) -> PyResult<Self> {
        Ok(Self(ProcessLocal::new(Arc::new(DeviceState::new(session.shared()?)?))))
    }

    #[getter]
    fn device_number(&self) -> PyResult<i64> {
        Ok(self.state()?.device().id)
    }

    /// Bytes of live buffers that the contexts of the session allocated.
    #[getter]
    fn bytes_allocated(&self) -> PyResult<u64> {
        let state = self.state()?;
        let usage = state.account.usage();
        let on_device = usage.devices.iter().filter(|used| used.device == state.device());
        Ok(on_device.map(|used| used.live_bytes).sum())
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.state()?;
        detach(py, || {
            state.wait_for_legacy()?;
            state.stream.synchronize()
        })
        .or_raise()
    }

    /// Allocates memory that can be exported to other processes.
    fn allocate(&self, py: Python<'_>, bytes: usize) -> PyResult<DeviceMemory> {
        let state = self.state()?;
        let memory = detach(py, || -> crossdock_plugin_api::Result<Buffer> {
            let block = state.account.allocate_shareable(state.device(), bytes)?;
            // SAFETY: the account's backend allocated the block on this device, and no other code
            // uses the block.
            let block = unsafe { BufferMut::from_block(state.stream.memory(), state.device(), block) };
            // The buffer stays writable, and all writes run on one stream. `Allocation` calls
            // `mark_used` after each use, so that the memory is freed after the last use.
            Ok(block.freeze_now())
        });
        Ok(DeviceMemory::new(Allocation::new(state.clone(), memory.or_raise()?, true)))
    }

    /// Imports `bytes` bytes at `address` in place, and keeps their owner `base` alive.
    fn foreign(&self, address: u64, bytes: usize, base: Option<Py<PyAny>>) -> PyResult<DeviceMemory> {
        let state = self.state()?;
        cuda::tensor::check_range(state, address, bytes as u64, "foreign_buffer")?;
        let owner = ForeignOwner::new(ProcessLocal::new(base.map(OwnedObject::new)));
        // SAFETY: `check_range` proved that the range is device memory. The documentation of
        // `foreign_buffer` requires `base`, or the caller, to keep it allocated.
        let buffer =
            unsafe { Buffer::foreign(&owner, state.device(), address, Some(bytes as u64), Ready::Now) };
        Ok(DeviceMemory::new(Allocation::external(state.clone(), buffer, true)))
    }

    /// Imports the memory of an object with `__dlpack__` or `__cuda_array_interface__` in place.
    /// `None` if it is empty.
    fn of_tensor(&self, obj: &Bound<'_, PyAny>) -> PyResult<Option<DeviceMemory>> {
        cuda::tensor::memory_of(self.state()?, obj)
    }

    /// Rebuilds a table or a column from a header of `device_parts`, and memory with the same
    /// contents.
    fn rebuild<'py>(
        &self,
        py: Python<'py>,
        header: Vec<u8>,
        memory: &DeviceMemory,
    ) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state()?;
        let parts = DeviceParts { header, buffer: memory.buffer()? };
        let rebuilt = detached(py, || state.shared.session.from_device_parts(parts))?;
        into_python(py, rebuilt, Some(&state.shared))
    }

    /// Opens memory that another process exported. `description` is the result of `export_ipc`.
    fn open_ipc(&self, py: Python<'_>, description: &[u8]) -> PyResult<DeviceMemory> {
        cuda::ipc::open(py, self.state()?, description)
    }

    fn new_host_buffer(&self, py: Python<'_>, bytes: usize) -> PyResult<HostBuffer> {
        let state = self.state()?;
        let block = detach(py, || state.stream.memory().alloc_pinned(bytes)).or_raise()?;
        HostBuffer::new(state, block)
    }
}
