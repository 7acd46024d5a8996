//! Objects as a header and buffers, for pickle and for other ways between processes.

use std::ffi::c_int;

use crossdock::{Parts, PartsHeader};
use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_plugin_api::Device;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use crate::runtime::errors::OrRaise;
use crate::runtime::process::ProcessLocal;

/// The first version of pickle's protocol that carries buffers outside of the pickled bytes.
const OUT_OF_BAND: i32 = 5;

/// What `to_parts` returns.
pub type HeaderAndBuffers<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>);

/// What `__reduce_ex__` returns: a function, and its arguments.
pub type Reduced<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

/// A buffer of an object that was taken apart. It implements the buffer protocol, read-only.
#[pyclass(frozen, weakref, module = "crossdock")]
pub struct Part(ProcessLocal<Buffer>);

impl Part {
    fn new(buffer: Buffer) -> Self {
        // Other libraries may still copy from the memory when they release it.
        buffer.mark_exported();
        Self(ProcessLocal::new(buffer))
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        let buffer = self.0.get()?;
        let len = buffer.len().unwrap_or(0);
        if len == 0 {
            return Ok(&[]);
        }
        // SAFETY: a part is in host memory and complete, so its `len` bytes are readable. They are
        // alive as long as `buffer`, which `self` owns.
        Ok(unsafe { std::slice::from_raw_parts(buffer.address() as *const u8, len) })
    }
}

#[pymethods]
impl Part {
    /// # Safety
    /// `view` is a valid `Py_buffer` to fill in; Python calls this slot.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: `view` is valid for writes. `obj` is NULL if this function fails, as the protocol
        // requires.
        unsafe { (*view).obj = std::ptr::null_mut() };
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("the parts of an object are read-only"));
        }
        let bytes = slf.get().bytes()?;
        let (start, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is valid. The function stores a reference to `slf`, which keeps the bytes
        // alive until the view is released.
        let result = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        if result == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.bytes()?.len())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("crossdock.Part({} bytes)", self.bytes()?.len()))
    }
}

/// Returns the header and the buffers of an object.
pub fn to_python(py: Python<'_>, parts: Parts) -> PyResult<HeaderAndBuffers<'_>> {
    let list = PyList::empty(py);
    for buffer in parts.buffers {
        list.append(Part::new(buffer))?;
    }
    Ok((PyBytes::new(py, &parts.header), list))
}

/// Returns the function that rebuilds an object. From protocol 5 on, the buffers are arguments that
/// pickle may carry outside of its bytes; otherwise they are copied.
pub fn reduce(py: Python<'_>, protocol: i32, parts: Parts) -> PyResult<Reduced<'_>> {
    let mut arguments = Vec::with_capacity(1 + parts.buffers.len());
    arguments.push(PyBytes::new(py, &parts.header).into_any());
    let pickle_buffer = match protocol {
        OUT_OF_BAND.. => Some(py.import("pickle")?.getattr("PickleBuffer")?),
        _ => None,
    };
    for buffer in parts.buffers {
        let part = Part::new(buffer);
        arguments.push(match &pickle_buffer {
            Some(pickle_buffer) => pickle_buffer.call1((part,))?,
            None => PyBytes::new(py, part.bytes()?).into_any(),
        });
    }
    Ok((py.import("crossdock._session")?.getattr("rebuild")?, PyTuple::new(py, arguments)?))
}

/// Returns the bytes of an object with the buffer protocol as a buffer, without a copy.
pub fn received(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let view = PyMemoryView::from(object)?;
    let mut raw = ffi::Py_buffer::new();
    // SAFETY: `raw` is valid for writes, and is released below.
    if unsafe { ffi::PyObject_GetBuffer(view.as_ptr(), &raw mut raw, ffi::PyBUF_SIMPLE) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let (address, len) = (raw.buf as u64, raw.len as u64);
    // SAFETY: the call above filled in `raw`. The view keeps the memory alive without it.
    unsafe { ffi::PyBuffer_Release(&raw mut raw) };
    // If the owner is dropped without the interpreter's lock, PyO3 releases the view the next time
    // that a thread holds the lock.
    let owner = ForeignOwner::new(view.unbind());
    // SAFETY: the view keeps the exported memory of `len` contiguous bytes alive. Python's protocol
    // lets the exporter change the bytes; the documentation of `from_parts` forbids that.
    Ok(unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(len), Ready::Now) })
}

/// Parses a header.
pub fn header_of(header: &Bound<'_, PyAny>) -> PyResult<PartsHeader> {
    let bytes = PyBuffer::<u8>::get(header)?.to_vec(header.py())?;
    PartsHeader::read(&bytes).or_raise()
}
