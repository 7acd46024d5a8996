//! `DeviceMemory`: a range of device memory that Python reads and writes.

use std::sync::{Arc, PoisonError, RwLock};

use crossdock_memory::Buffer;
use crossdock_plugin_api::ByteSource;
use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cuda;
use crate::cuda::allocation::{Allocation, CopyError};
use crate::objects::bytes::BufferSource;
use crate::runtime::errors::{OrRaise, from_api, usage};
use crate::runtime::process::{ProcessLocal, detach};

/// The state of `crossdock.cuda.Buffer`: a range of an allocation, kept alive until it is closed.
#[pyclass(frozen, module = "crossdock._native")]
pub struct DeviceMemory {
    open: ProcessLocal<RwLock<Option<Arc<Allocation>>>>,
    offset: usize,
    bytes: usize,
}

impl DeviceMemory {
    /// The range of a whole allocation.
    pub fn new(allocation: Allocation) -> Self {
        let bytes = allocation.buffer.len().unwrap_or(0);
        Self::range(Arc::new(allocation), 0, bytes)
    }

    fn range(allocation: Arc<Allocation>, offset: usize, bytes: usize) -> Self {
        Self { open: ProcessLocal::new(RwLock::new(Some(allocation))), offset, bytes }
    }

    /// # Errors
    /// UsageError if the buffer is closed, or in a forked child.
    fn allocation(&self) -> PyResult<Arc<Allocation>> {
        let open = self.open.get()?.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| usage("the buffer is closed"))
    }

    /// The bytes as a buffer of a table. Readers wait for the work submitted so far.
    ///
    /// # Errors
    /// UsageError if the memory is closed.
    pub fn buffer(&self) -> PyResult<Buffer> {
        let allocation = self.allocation()?;
        allocation.share(self.offset, self.bytes).or_raise()
    }

    /// Returns the offset of a range in the allocation.
    ///
    /// # Errors
    /// UsageError if the range exceeds the buffer.
    fn offset_of(&self, offset: usize, bytes: usize) -> PyResult<usize> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        end.map(|_| self.offset + offset).ok_or_else(|| {
            usage(format!("{bytes} bytes at offset {offset} exceed the buffer of {} bytes", self.bytes))
        })
    }

    /// # Errors
    /// UsageError if the memory is read-only.
    fn writable_allocation(&self) -> PyResult<Arc<Allocation>> {
        let allocation = self.allocation()?;
        if !allocation.writable {
            return Err(usage("the buffer is read-only: copy it, and write to the copy"));
        }
        Ok(allocation)
    }
}

/// Number of bytes in each piece of a long copy. Signals are checked between two pieces.
const PIECE_BYTES: usize = 256 << 20;

/// An incomplete copy.
struct Stopped {
    error: PyErr,
    /// Whether the device may still access the host memory.
    in_use: bool,
}

impl Stopped {
    /// Returns the exception. Leaks the owner of the host memory if the device may still access it.
    fn into_result<T, U>(self, host_owner: T) -> PyResult<U> {
        if self.in_use {
            std::mem::forget(host_owner);
        }
        Err(self.error)
    }
}

/// Calls `copy` with the offset and length of each piece, without the interpreter's lock. If a
/// signal handler raises between two pieces, as Ctrl-C does, the copy ends.
fn copy_in_pieces(
    py: Python<'_>,
    bytes: usize,
    mut copy: impl FnMut(usize, usize) -> Result<(), CopyError> + Send,
) -> Result<(), Stopped> {
    for start in (0..bytes).step_by(PIECE_BYTES) {
        if start > 0 {
            py.check_signals().map_err(|error| Stopped { error, in_use: false })?;
        }
        let result = detach(py, || copy(start, PIECE_BYTES.min(bytes - start)));
        result.map_err(|CopyError { error, in_use }| Stopped { error: from_api(error), in_use })?;
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

    /// Address of the first byte. Does not mark the memory as exported.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.allocation()?.buffer.address() + self.offset as u64)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.open.get()?.read().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    /// Prepares the memory for external consumers, and returns the handle of the session's stream.
    fn mark_exported(&self, py: Python<'_>) -> PyResult<usize> {
        let allocation = self.allocation()?;
        detach(py, || allocation.mark_exported()).or_raise()?;
        Ok(allocation.state.stream.native() as usize)
    }

    fn slice(&self, offset: usize, bytes: usize) -> PyResult<Self> {
        Ok(Self::range(self.allocation()?, self.offset_of(offset, bytes)?, bytes))
    }

    /// Releases the memory, unless slices of it are open.
    fn close(&self, py: Python<'_>) {
        // A forked child must not release memory of its parent.
        if let Ok(open) = self.open.get() {
            let allocation = open.write().unwrap_or_else(PoisonError::into_inner).take();
            detach(py, || drop(allocation));
        }
    }

    fn read<'py>(&self, py: Python<'py>, offset: usize, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (allocation, offset) = (self.allocation()?, self.offset_of(offset, bytes)?);
        let len = isize::try_from(bytes)
            .map_err(|_| usage(format!("{bytes} bytes exceed the maximum size of a bytes object")))?;
        // SAFETY: `PyBytes_FromStringAndSize` accepts NULL, and then returns an object of `len`
        // uninitialised bytes. They may be written while no other code has the object.
        let (result, address) = unsafe {
            let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), len);
            let object = Bound::from_owned_ptr_or_err(py, object)?.cast_into::<PyBytes>()?;
            let address = ffi::PyBytes_AsString(object.as_ptr()) as usize;
            (object, address)
        };
        let copied = copy_in_pieces(py, bytes, |start, n| {
            // SAFETY: the piece is in the object's bytes, and no other code has the object.
            let piece = unsafe { std::slice::from_raw_parts_mut((address + start) as *mut u8, n) };
            allocation.read(offset + start, piece)
        });
        match copied {
            Ok(()) => Ok(result),
            Err(stopped) => stopped.into_result(result),
        }
    }

    fn read_into(&self, py: Python<'_>, offset: usize, bytes: usize, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let (allocation, offset) = (self.allocation()?, self.offset_of(offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let to = PyBuffer::<u8>::get(to)?;
        if to.readonly() || !to.is_c_contiguous() || to.len_bytes() < bytes {
            return Err(usage(format!(
                "expected a contiguous, writable buffer of at least {bytes} bytes, got a {}{}buffer of {} bytes",
                if to.readonly() { "read-only " } else { "" },
                if to.is_c_contiguous() { "" } else { "non-contiguous " },
                to.len_bytes()
            )));
        }
        let address = to.buf_ptr() as usize;
        let copied = copy_in_pieces(py, bytes, |start, n| {
            // SAFETY: the piece is in the writable buffer, whose view keeps it alive. As for any
            // writable buffer, the caller must not access it from another thread during the copy.
            let piece = unsafe { std::slice::from_raw_parts_mut((address + start) as *mut u8, n) };
            allocation.read(offset + start, piece)
        });
        copied.or_else(|stopped| stopped.into_result(to))
    }

    fn write(&self, py: Python<'_>, offset: usize, bytes: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (allocation, offset) = (self.writable_allocation()?, self.offset_of(offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let source = BufferSource::new(data)?;
        let all = source.map().unwrap_or_default();
        let from = all.get(..bytes);
        let from = from.ok_or_else(|| usage(format!("expected {bytes} bytes to copy, got {}", all.len())))?;
        let copied = copy_in_pieces(py, bytes, |start, n| {
            allocation.write(offset + start, from.get(start..start + n).unwrap_or(&[]))
        });
        copied.or_else(|stopped| stopped.into_result(source))
    }

    fn copy_from(
        &self,
        py: Python<'_>,
        offset: usize,
        source: &Self,
        from_offset: usize,
        bytes: usize,
    ) -> PyResult<()> {
        let (to, offset) = (self.writable_allocation()?, self.offset_of(offset, bytes)?);
        let (from, from_offset) = (source.allocation()?, source.offset_of(from_offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        detach(py, || to.copy_from(offset, &from, from_offset, bytes)).or_raise()
    }

    /// Exports the range to other processes, and returns its description.
    fn export_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (allocation, offset) = (self.writable_allocation()?, self.offset);
        let description = detach(py, || cuda::ipc::export(&allocation, offset, self.bytes)).or_raise()?;
        Ok(PyBytes::new(py, &description))
    }
}
