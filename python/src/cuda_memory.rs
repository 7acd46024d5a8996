//! Ranges of a CUDA device's memory that Python reads and writes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crossdock_memory::{Buffer, Copies, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::IpcExport;
use crossdock_plugin_api::{ByteSource, Device, Error, Result, abi};
use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::BufferSource;
use crate::cuda_context::Place;
use crate::cuda_ipc;
use crate::errors::{OrRaise, usage};
use crate::process::Own;

/// Memory of a device, shared by the buffers that lie in it. Unlike a table's it is written, in the order of one stream.
pub struct Allocation {
    pub buffer: Buffer,
    pub place: Arc<Place>,
    pub writable: bool,
    /// Others know where it is, and may be using it on streams of theirs.
    shown: AtomicBool,
    /// What other processes have been told of it. It must be there as long as they use it, as the memory must.
    pub exports: Mutex<Vec<IpcExport>>,
}

impl Allocation {
    pub fn new(place: Arc<Place>, buffer: Buffer, writable: bool) -> Self {
        Self { buffer, place, writable, shown: AtomicBool::new(false), exports: Mutex::default() }
    }

    /// Of memory that others have had before.
    pub fn shown(place: Arc<Place>, buffer: Buffer, writable: bool) -> Self {
        Self { shown: AtomicBool::new(true), ..Self::new(place, buffer, writable) }
    }

    fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Others are about to be told of it: what they do on the legacy default stream comes after what was done here, and from
    /// now on what is done here after that, and the other way round.
    pub fn show(&self) -> Result<()> {
        self.shown.store(true, Ordering::Relaxed);
        self.buffer.mark_lent();
        self.place.before_strangers()
    }

    fn begin(&self) -> Result<&Stream> {
        let stream = &self.place.stream;
        if stream.is_capturing()? {
            return Err(Error::device(format!(
                "the session's stream on {} is under graph capture: end the capture before copying",
                self.place.device()
            )));
        }
        if self.is_shown() {
            self.place.after_strangers()?;
        }
        Ok(stream)
    }

    fn end(&self) -> Result<()> {
        self.buffer.mark_used(&self.place.stream)?;
        if self.is_shown() { self.place.before_strangers() } else { Ok(()) }
    }

    /// One copy on the place's stream, which may still be running.
    ///
    /// # Safety
    /// Both ranges are of their devices, and stay until it has run.
    unsafe fn copy(&self, to: (Device, u64), from: (Device, u64), bytes: usize) -> Result<()> {
        let stream = self.begin()?;
        let copy = abi::Copy {
            to: to.1 as *mut c_void,
            from: from.1 as *const c_void,
            bytes,
            to_device: to.0,
            from_device: from.0,
        };
        let memory = self.place.account.memory();
        // SAFETY: the account is alive, and its interface with it.
        let f = unsafe { (*memory).copy };
        let f = f.ok_or_else(|| Error::internal("the host's memory has no function to copy with"))?;
        // SAFETY: the interface's own function on itself, a stream of its backend, and ranges as this function's contract says.
        let enqueued = Error::check(|err| unsafe { f(memory, stream.raw(), &copy, 1, err) });
        enqueued.and_then(|()| self.end()).inspect_err(|_| self.settle_or_keep())
    }

    /// After a failure: no event tells when what was enqueued is over.
    fn settle_or_keep(&self) {
        if self.place.stream.synchronize().is_err() {
            std::mem::forget(self.buffer.clone());
        }
    }

    /// Its bytes from `offset` on, to the host. Blocks until they are there. `Err((_, true))`: something may still write
    /// to `to`, and nobody can tell for how long.
    fn read(&self, offset: usize, to: &mut [u8]) -> std::result::Result<(), (Error, bool)> {
        let mut read = move || {
            let stream = self.begin()?;
            let mut copies = Copies::new();
            copies.push_to_host(to, &self.buffer, offset)?;
            copies.submit(stream)
        };
        read().map_err(|error| (error, self.place.stream.synchronize().is_err()))
    }

    /// Bytes of the host to `offset`. Blocks until they are there: they are the caller's to change then.
    fn write(&self, offset: usize, source: BufferSource, bytes: usize) -> Result<()> {
        let target = self.buffer.slice(offset, bytes)?;
        let from = source.map().and_then(|all| all.get(..bytes));
        let from = from.ok_or_else(|| Error::invalid_argument("fewer bytes than were to be copied"))?;
        let on = self.place.device();
        // SAFETY: the target lies in the buffer; the source is held, and waited for below.
        let copied = unsafe { self.copy((on, target.address()), (Device::CPU, from.as_ptr() as u64), bytes) };
        let waited = self.place.stream.synchronize();
        if waited.is_err() {
            // It may still be read.
            std::mem::forget(source);
        }
        copied.and(waited)
    }

    /// Bytes of another buffer to `offset`. Blocks nobody.
    fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, bytes: usize) -> Result<()> {
        let target = self.buffer.slice(offset, bytes)?;
        let source = from.buffer.slice(from_offset, bytes)?;
        let apart = source.address() + bytes as u64 <= target.address()
            || target.address() + bytes as u64 <= source.address();
        if !apart {
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes from {:#x} to {:#x} overlap: copy them by way of another buffer",
                source.address(),
                target.address()
            )));
        }
        let (ours, theirs) = (&self.place.stream, &from.place.stream);
        // Another session has another stream, and its memory goes back by that one's order.
        let apart = ours.raw() != theirs.raw();
        from.begin()?;
        if apart {
            follow(ours, theirs)?;
        }
        let (to, at) = ((self.place.device(), target.address()), (from.place.device(), source.address()));
        // SAFETY: both ranges lie in their buffers, whose owners are told of the use: ours by the copy, theirs below.
        unsafe { self.copy(to, at, bytes) }?;
        let ended = match apart {
            true => follow(theirs, ours).and_then(|()| from.end()),
            false => from.end(),
        };
        ended.inspect_err(|_| {
            if ours.synchronize().is_err() {
                std::mem::forget(from.buffer.clone());
            }
        })
    }
}

/// What follows on `stream` comes after what `other`, of another backend, has been given so far.
fn follow(stream: &Stream, other: &Stream) -> Result<()> {
    let ready = other.record()?;
    let owner = ForeignOwner::new(ready.clone());
    // SAFETY: the event is `ready`'s, which its owner holds.
    stream.wait(&unsafe { Ready::from_sync_event(ready.sync_event(), &owner) })
}

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
        py.detach(|| allocation.show()).or_raise()?;
        Ok(allocation.place.stream.native() as usize)
    }

    fn slice(&self, offset: usize, bytes: usize) -> PyResult<Self> {
        Ok(Self::of(self.allocation()?, self.at(offset, bytes)?, bytes))
    }

    /// Its hold on the memory ends; slices of it keep theirs.
    fn close(&self, py: Python<'_>) {
        if let Ok(held) = self.held.get() {
            let held = held.write().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| drop(held));
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
        let filled = py.detach(|| {
            // SAFETY: the object's own bytes, which are Python's and any values; nobody else has seen it.
            allocation.read(offset, unsafe { std::slice::from_raw_parts_mut(start as *mut u8, bytes) })
        });
        match filled {
            Ok(()) => Ok(made),
            Err((error, in_use)) => {
                if in_use {
                    std::mem::forget(made);
                }
                Err(error).or_raise()
            }
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
        let filled = py.detach(|| {
            // SAFETY: so many bytes of the buffer's, which is held meanwhile. Who looks at them meanwhile sees them change.
            allocation.read(offset, unsafe { std::slice::from_raw_parts_mut(start as *mut u8, bytes) })
        });
        filled.or_else(|(error, in_use)| {
            if in_use {
                std::mem::forget(to);
            }
            Err(error).or_raise()
        })
    }

    fn write(&self, py: Python<'_>, offset: usize, bytes: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let (allocation, offset) = (self.to_write()?, self.at(offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        let source = BufferSource::new(data)?;
        py.detach(|| allocation.write(offset, source, bytes)).or_raise()
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
        py.detach(|| to.copy_from(offset, &from, from_offset, bytes)).or_raise()
    }

    /// For another process, as bytes.
    fn export_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (allocation, offset) = (self.to_write()?, self.offset);
        let description = py.detach(|| cuda_ipc::export(&allocation, offset, self.bytes)).or_raise()?;
        Ok(PyBytes::new(py, &description))
    }
}
