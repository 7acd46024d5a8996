//! Pinned host memory for Python.

use std::ffi::c_int;
use std::sync::Arc;

use crossdock_memory::BufferMut;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda_context::Place;
use crate::errors::{Kind, raise};
use crate::process::Own;

/// Host memory that a CUDA device copies from and to at full speed: bytes to read and write, by the buffer protocol. It is
/// given back when the last view of it is gone.
#[pyclass(frozen, weakref, module = "crossdock.cuda")]
pub struct HostBuffer {
    held: Own<(BufferMut, Arc<Place>)>,
    address: usize,
    bytes: usize,
}

impl HostBuffer {
    /// All of a pinned block.
    pub fn new(place: &Arc<Place>, mut block: BufferMut) -> PyResult<Self> {
        let bytes = block.len();
        let slice = block.host_slice_mut();
        let lost = || raise(Kind::Device, "the host cannot reach the pinned memory that it allocated");
        let slice = slice.ok_or_else(lost)?;
        // Otherwise others' bytes would be in it, of this process or of its past.
        slice.fill(0);
        let address = slice.as_mut_ptr() as usize;
        Ok(Self { held: Own::new((block, place.clone())), address, bytes })
    }
}

#[pymethods]
impl HostBuffer {
    /// In bytes.
    #[getter]
    fn size(&self) -> usize {
        self.bytes
    }

    /// Where it begins, for the host and for the device.
    #[getter]
    fn address(&self) -> PyResult<usize> {
        self.held.get().map(|_| self.address)
    }

    /// Always True.
    #[getter]
    fn is_cpu(&self) -> bool {
        true
    }

    fn __len__(&self) -> usize {
        self.bytes
    }

    /// # Safety
    /// Called by Python, with a view to fill in.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let own = slf.get();
        own.held.get()?;
        // SAFETY: Python's own view, of memory that lives as long as `slf`, which the view holds. Its length is at most isize's.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), own.address as *mut _, own.bytes as isize, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("<crossdock.cuda.HostBuffer address={:#x} size={}>", self.address, self.bytes)
    }
}
