//! `HostBuffer`: pinned host memory with the buffer protocol.

use std::ffi::c_int;
use std::sync::Arc;

use crossdock_memory::BufferMut;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda::context::DeviceState;
use crate::runtime::errors::{Kind, raise};
use crate::runtime::process::ProcessLocal;

/// Pinned host memory. Copies between it and a CUDA device run at full speed. It implements the
/// buffer protocol with writable views. It is freed when the last view of it is released.
///
/// >>> host = context.new_host_buffer(3)
/// >>> memoryview(host)[:] = b"abc"
/// >>> context.buffer_from_data(host).to_pybytes()
/// b'abc'
#[pyclass(frozen, weakref, module = "crossdock.cuda")]
pub struct HostBuffer {
    memory: ProcessLocal<(BufferMut, Arc<DeviceState>)>,
    address: usize,
    bytes: usize,
}

impl HostBuffer {
    /// Wraps a pinned block, and clears it.
    pub fn new(state: &Arc<DeviceState>, mut block: BufferMut) -> PyResult<Self> {
        let bytes = block.len();
        let slice = block.host_slice_mut();
        let unmapped = || raise(Kind::Device, "the pinned memory is not accessible to the host");
        let slice = slice.ok_or_else(unmapped)?;
        // The block may contain earlier data of this process or of a plugin.
        slice.fill(0);
        let address = slice.as_mut_ptr() as usize;
        Ok(Self { memory: ProcessLocal::new((block, state.clone())), address, bytes })
    }
}

#[pymethods]
impl HostBuffer {
    /// Size in bytes.
    ///
    /// >>> context.new_host_buffer(8).size
    /// 8
    #[getter]
    fn size(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte, on the host and on the device.
    ///
    /// >>> context.new_host_buffer(8).address > 0
    /// True
    #[getter]
    fn address(&self) -> PyResult<usize> {
        self.memory.get().map(|_| self.address)
    }

    /// Whether this is host memory. Always True.
    ///
    /// >>> context.new_host_buffer(8).is_cpu
    /// True
    #[getter]
    fn is_cpu(&self) -> bool {
        true
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    /// # Safety
    /// `view` is a valid `Py_buffer` to fill in; Python calls this slot.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Self { memory, address, bytes } = slf.get();
        memory.get()?;
        // SAFETY: Python passes a valid view, which keeps `slf` and with it the memory alive. The
        // length of an allocation is at most `isize::MAX`.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), *address as *mut _, *bytes as isize, 0, flags)
        };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("<crossdock.cuda.HostBuffer address={:#x} size={}>", self.address, self.bytes)
    }
}
