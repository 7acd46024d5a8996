//! Ranges of a CUDA device's memory that Python reads and writes.

use std::sync::{Arc, PoisonError, RwLock};

use crossdock_plugin_api::{ByteSource, Error};
use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::BufferSource;
use crate::cuda_allocation::Allocation;
use crate::cuda_ipc;
use crate::errors::{OrRaise, of_api, usage};
use crate::process::{Own, detach};

/// What is behind `crossdock.cuda.Buffer`: a range of an allocation, which it holds until it is closed.
#[pyclass(frozen, module = "crossdock._native")]
pub struct DeviceMemory {
    held: Own<RwLock<Option<Arc<Allocation>>>>,
    offset: usize,
    bytes: usize,
}

impl DeviceMemory {
    /// All of it.
    pub fn new(allocation: Allocation) -> Self {
        let bytes = allocation.buffer.len().unwrap_or(0);
        Self::of(Arc::new(allocation), 0, bytes)
    }

    fn of(allocation: Arc<Allocation>, offset: usize, bytes: usize) -> Self {
        Self { held: Own::new(RwLock::new(Some(allocation))), offset, bytes }
    }

    fn allocation(&self) -> PyResult<Arc<Allocation>> {
        let held = self.held.get()?.read().unwrap_or_else(PoisonError::into_inner);
        held.clone().ok_or_else(|| usage("the buffer is closed"))
    }

    /// # Errors
    /// So many bytes do not lie in it.
    fn at(&self, offset: usize, bytes: usize) -> PyResult<usize> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let outside =
            || usage(format!("bytes {offset}..+{bytes} lie outside a buffer of {} bytes", self.bytes));
        end.map(|_| self.offset + offset).ok_or_else(outside)
    }

    fn to_write(&self) -> PyResult<Arc<Allocation>> {
        let allocation = self.allocation()?;
        if !allocation.writable {
            return Err(usage(
                "the buffer is of memory that may only be read: copy it, and write to the copy",
            ));
        }
        Ok(allocation)
    }
}

/// So many bytes are copied before Python looks at signals.
const PIECE_BYTES: usize = 256 << 20;

/// Why a copy came to no end.
struct Stopped {
    error: PyErr,
    /// Something may still use the host's side of it.
    in_use: bool,
}

impl Stopped {
    /// Raises; what may be in use stays for ever.
    fn leave<T, U>(self, host_side: T) -> PyResult<U> {
        if self.in_use {
            std::mem::forget(host_side);
        }
        Err(self.error)
    }
}

/// Copies a piece (where it begins, its bytes) after the other without the interpreter's lock. Between two of them a signal whose
/// handler raises, as Ctrl-C does, ends it.
fn in_pieces(
    py: Python<'_>,
    bytes: usize,
    mut copy: impl FnMut(usize, usize) -> Result<(), (Error, bool)> + Send,
) -> Result<(), Stopped> {
    for at in (0..bytes).step_by(PIECE_BYTES) {
        if at > 0 {
            py.check_signals().map_err(|error| Stopped { error, in_use: false })?;
        }
        let copied = detach(py, || copy(at, PIECE_BYTES.min(bytes - at)));
        copied.map_err(|(error, in_use)| Stopped { error: of_api(error), in_use })?;
    }
    Ok(())
}

#[pymethods]
impl DeviceMemory {
    #[getter]
    fn size(&self) -> usize {
        self.bytes
    }

    #[getter]
    fn writable(&self) -> PyResult<bool> {
        Ok(self.allocation()?.writable)
    }

    /// Where it begins; nobody is told.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.allocation()?.buffer.address() + self.offset as u64)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.held.get()?.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Others are about to be told where it is. The handle of the stream that it is used on.
    fn show(&self, py: Python<'_>) -> PyResult<usize> {
        let allocation = self.allocation()?;
        detach(py, || allocation.show()).or_raise()?;
        Ok(allocation.place.stream.native() as usize)
    }

    fn slice(&self, offset: usize, bytes: usize) -> PyResult<Self> {
        Ok(Self::of(self.allocation()?, self.at(offset, bytes)?, bytes))
    }

    /// Its hold on the memory ends; slices of it keep theirs.
    fn close(&self, py: Python<'_>) {
        if let Ok(held) = self.held.get() {
            let held = held.write().unwrap_or_else(PoisonError::into_inner).take();
            detach(py, || drop(held));
        }
    }

    fn read<'py>(&self, py: Python<'py>, offset: usize, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (allocation, offset) = (self.allocation()?, self.at(offset, bytes)?);
        let n = isize::try_from(bytes).map_err(|_| usage("more bytes than Python's objects can have"))?;
        // SAFETY: without bytes to begin with it makes an object of that many, to be filled in before anybody sees it.
        let (made, start) = unsafe {
            let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), n);
            let made = Bound::from_owned_ptr_or_err(py, made)?.cast_into::<PyBytes>()?;
            let start = ffi::PyBytes_AsString(made.as_ptr()) as usize;
            (made, start)
        };
        let filled = in_pieces(py, bytes, |at, n| {
            // SAFETY: the object's own bytes, which are Python's and any values; nobody else has seen it.
            allocation
                .read(offset + at, unsafe { std::slice::from_raw_parts_mut((start + at) as *mut u8, n) })
        });
        match filled {
            Ok(()) => Ok(made),
            Err(stopped) => stopped.leave(made),
        }
    }

    fn read_into(&self, py: Python<'_>, offset: usize, bytes: usize, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let (allocation, offset) = (self.allocation()?, self.at(offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let to = PyBuffer::<u8>::get(to)?;
        if to.readonly() || !to.is_c_contiguous() || to.len_bytes() < bytes {
            return Err(usage(format!(
                "expected a buffer of {bytes} bytes or more, contiguous and to be written; got one of {} bytes{}",
                to.len_bytes(),
                if to.readonly() { " to be read only" } else { "" }
            )));
        }
        let start = to.buf_ptr() as usize;
        let filled = in_pieces(py, bytes, |at, n| {
            // SAFETY: so many bytes of the buffer's, which is held meanwhile. Who looks at them meanwhile sees them change.
            allocation
                .read(offset + at, unsafe { std::slice::from_raw_parts_mut((start + at) as *mut u8, n) })
        });
        filled.or_else(|stopped| stopped.leave(to))
    }

    fn write(&self, py: Python<'_>, offset: usize, bytes: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (allocation, offset) = (self.to_write()?, self.at(offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let source = BufferSource::new(data)?;
        let from = source.map().and_then(|all| all.get(..bytes));
        let from = from.ok_or_else(|| usage("fewer bytes than were to be copied"))?;
        let written =
            in_pieces(py, bytes, |at, n| allocation.write(offset + at, from.get(at..at + n).unwrap_or(&[])));
        written.or_else(|stopped| stopped.leave(source))
    }

    fn copy_from(
        &self,
        py: Python<'_>,
        offset: usize,
        source: &Self,
        from_offset: usize,
        bytes: usize,
    ) -> PyResult<()> {
        let (to, offset) = (self.to_write()?, self.at(offset, bytes)?);
        let (from, from_offset) = (source.allocation()?, source.at(from_offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        detach(py, || to.copy_from(offset, &from, from_offset, bytes)).or_raise()
    }

    /// For another process, as bytes.
    fn export_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (allocation, offset) = (self.to_write()?, self.offset);
        let description = detach(py, || cuda_ipc::export(&allocation, offset, self.bytes)).or_raise()?;
        Ok(PyBytes::new(py, &description))
    }
}
