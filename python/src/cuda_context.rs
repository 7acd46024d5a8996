//! A CUDA device's memory for Python: where it comes from, and the order in which it is used.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_memory::{Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Device, abi};
use pyo3::prelude::*;

use crate::cuda_allocation::Allocation;
use crate::cuda_array_interface::Kept;
use crate::cuda_host_buffer::HostBuffer;
use crate::cuda_ipc;
use crate::cuda_memory::DeviceMemory;
use crate::cuda_tensor;
use crate::dlpack_in_producer::LEGACY_STREAM;
use crate::errors::{Kind, OrRaise, raise, usage};
use crate::process::{Own, detach};
use crate::session::{Session, Shared};

/// As whose it is counted.
const ACCOUNT: &str = "cuda buffers";

/// A session's CUDA device. Everything that is done with its buffers goes onto the session's stream. Strangers know that
/// stream for what they were told it for, and else the legacy default one: see [`Place::after_strangers`].
pub struct Place {
    pub shared: Arc<Shared>,
    pub account: Arc<Account>,
    pub stream: Stream,
    legacy: Stream,
}

impl Place {
    fn new(shared: Arc<Shared>) -> PyResult<Self> {
        let stream = shared.session.stream().clone();
        let device = stream.device();
        if device.r#type != abi::DEVICE_CUDA {
            return Err(usage(format!(
                "the session works on {device}: expected one on a CUDA device, such as Session(\"cuda:0\")"
            )));
        }
        let account = shared.session.host().backend().account(ACCOUNT);
        // SAFETY: that stream is always there.
        let legacy = unsafe { stream.memory().adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        Ok(Self { shared, account, stream, legacy: legacy.or_raise()? })
    }

    pub fn device(&self) -> Device {
        self.stream.device()
    }

    pub fn backend(&self) -> &Backend {
        self.shared.session.host().backend()
    }

    /// What follows here comes after what the legacy default stream has been given: what libraries that nobody told of any
    /// stream use, and what waits for all streams but those that were made not to be waited for.
    pub fn after_strangers(&self) -> crossdock_plugin_api::Result<()> {
        self.stream.wait(&self.legacy.record()?)
    }

    /// What follows there comes after what has been done here.
    pub fn before_strangers(&self) -> crossdock_plugin_api::Result<()> {
        self.legacy.wait(&self.stream.record()?)
    }
}

/// How many CUDA devices there are.
#[pyfunction]
pub fn cuda_device_count(py: Python<'_>) -> PyResult<usize> {
    let counted = detach(py, || {
        let backend = Backend::builder().build();
        backend.cuda().map(|presence| presence.devices.len()).map_err(ToString::to_string)
    });
    counted.map_err(|missing| raise(Kind::Device, missing))
}

/// What is behind `crossdock.cuda.Context`.
#[pyclass(frozen, module = "crossdock._native")]
pub struct DeviceContext(Own<Arc<Place>>);

impl DeviceContext {
    /// # Errors
    /// The session was closed, or this process was forked off.
    fn place(&self) -> PyResult<&Arc<Place>> {
        self.0.get()
    }
}

#[pymethods]
impl DeviceContext {
    #[new]
    fn new(session: &Session) -> PyResult<Self> {
        Ok(Self(Own::new(Arc::new(Place::new(session.shared()?)?))))
    }

    #[getter]
    fn device_number(&self) -> PyResult<i64> {
        Ok(self.place()?.device().id)
    }

    /// Of buffers that were allocated here, and not given back.
    #[getter]
    fn bytes_allocated(&self) -> PyResult<u64> {
        let place = self.place()?;
        let usage = place.account.usage();
        let here = usage.devices.iter().filter(|used| used.device == place.device());
        Ok(here.map(|used| used.live_bytes).sum())
    }

    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let place = self.place()?;
        detach(py, || {
            place.after_strangers()?;
            place.stream.synchronize()
        })
        .or_raise()
    }

    /// Memory that may be given to other processes.
    fn allocate(&self, py: Python<'_>, bytes: usize) -> PyResult<DeviceMemory> {
        let place = self.place()?;
        let memory = detach(py, || -> crossdock_plugin_api::Result<Buffer> {
            let block = place.account.allocate_shareable(place.device(), bytes)?;
            // SAFETY: a block of this backend and this device, which is here alone.
            let block = unsafe { BufferMut::from_block(place.stream.memory(), place.device(), block) };
            // To be written all the same: whoever does, does it on one stream, and the owner is told of each use.
            Ok(block.freeze_now())
        });
        Ok(DeviceMemory::new(Allocation::new(place.clone(), memory.or_raise()?, true)))
    }

    /// `bytes` bytes at `address`, whose owner is `base`.
    fn foreign(&self, address: u64, bytes: usize, base: Option<Py<PyAny>>) -> PyResult<DeviceMemory> {
        let place = self.place()?;
        cuda_tensor::check_range(place, address, bytes as u64, "foreign_buffer")?;
        let owner = ForeignOwner::new(Own::new(base.map(Kept::new)));
        // SAFETY: the driver knows the range; that it stays is `base`'s to see to, or the caller's word, as the function says.
        let buffer =
            unsafe { Buffer::foreign(&owner, place.device(), address, Some(bytes as u64), Ready::Now) };
        Ok(DeviceMemory::new(Allocation::shown(place.clone(), buffer, true)))
    }

    /// The memory of an object with `__dlpack__` or `__cuda_array_interface__`; nothing where it is empty.
    fn of_tensor(&self, obj: &Bound<'_, PyAny>) -> PyResult<Option<DeviceMemory>> {
        cuda_tensor::memory_of(self.place()?, obj)
    }

    /// What another process exported as these bytes.
    fn open_ipc(&self, py: Python<'_>, description: &[u8]) -> PyResult<DeviceMemory> {
        cuda_ipc::open(py, self.place()?, description)
    }

    fn new_host_buffer(&self, py: Python<'_>, bytes: usize) -> PyResult<HostBuffer> {
        let place = self.place()?;
        let block = detach(py, || place.stream.memory().alloc_pinned(bytes)).or_raise()?;
        HostBuffer::new(place, block)
    }
}
