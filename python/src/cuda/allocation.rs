//! Device memory that is written in place, with copies ordered on one stream.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crossdock_memory::{Buffer, Copies, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::IpcExport;
use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::cuda::context::DeviceState;

/// Device memory that a buffer and its slices share. Unlike the memory of tables, this memory can
/// be written. All writes run on the session's stream.
pub struct Allocation {
    pub buffer: Buffer,
    pub state: Arc<DeviceState>,
    pub writable: bool,
    /// Whether external consumers know the address, and may use the memory on their own streams.
    is_exported: AtomicBool,
    /// Exports to other processes, kept because the other processes use their events.
    pub ipc_exports: Mutex<Vec<IpcExport>>,
}

/// A failed copy.
pub struct CopyError {
    pub error: Error,
    /// Whether the device may still access the host memory, because the wait for the copy failed.
    pub in_use: bool,
}

impl Allocation {
    /// Creates an allocation whose address no external consumer has received.
    pub fn new(state: Arc<DeviceState>, buffer: Buffer, writable: bool) -> Self {
        Self { buffer, state, writable, is_exported: AtomicBool::new(false), ipc_exports: Mutex::default() }
    }

    /// Creates an allocation of memory that an external library owns.
    pub fn external(state: Arc<DeviceState>, buffer: Buffer, writable: bool) -> Self {
        Self { is_exported: AtomicBool::new(true), ..Self::new(state, buffer, writable) }
    }

    fn is_exported(&self) -> bool {
        self.is_exported.load(Ordering::Relaxed)
    }

    /// Makes the legacy default stream wait for the work submitted so far, because external
    /// consumers submit their work to this stream. From then on, each operation waits for the
    /// legacy default stream, which in turn waits for the operation.
    pub fn mark_exported(&self) -> Result<()> {
        self.is_exported.store(true, Ordering::Relaxed);
        self.buffer.mark_exported();
        self.state.make_legacy_wait()
    }

    /// Returns the stream for an operation, which is ordered after the work of external consumers.
    fn begin(&self) -> Result<&Stream> {
        let stream = &self.state.stream;
        if stream.is_capturing()? {
            return Err(Error::device(format!(
                "the session's stream on {} is under graph capture: end the capture before copying",
                self.state.device()
            )));
        }
        if self.is_exported() {
            self.state.wait_for_legacy()?;
        }
        Ok(stream)
    }

    /// Orders the release of the memory, and later work of external consumers, after the operation.
    fn end(&self) -> Result<()> {
        self.buffer.mark_used(&self.state.stream)?;
        if self.is_exported() { self.state.make_legacy_wait() } else { Ok(()) }
    }

    /// A range of the memory as a buffer of a table. Its readers wait for the work that was
    /// submitted so far.
    pub fn share(&self, offset: usize, bytes: usize) -> Result<Buffer> {
        let ready = self.begin()?.record()?;
        let range = self.buffer.slice(offset, bytes)?;
        let (device, address) = (range.device(), range.address());
        let owner = ForeignOwner::new(range);
        // SAFETY: `range` has these bytes, and `owner` keeps it until the last reader has run.
        Ok(unsafe { Buffer::foreign(&owner, device, address, Some(bytes as u64), ready) })
    }

    /// Submits one copy to the session's stream.
    ///
    /// # Safety
    /// Both ranges are valid on their devices until the copy has run.
    unsafe fn copy(&self, to: (Device, u64), from: (Device, u64), bytes: usize) -> Result<()> {
        let stream = self.begin()?;
        let copy = abi::Copy {
            to: to.1 as *mut c_void,
            from: from.1 as *const c_void,
            bytes,
            to_device: to.0,
            from_device: from.0,
        };
        let memory = self.state.account.memory();
        // SAFETY: `account` keeps its memory interface alive.
        let f = unsafe { (*memory).copy };
        let f = f.ok_or_else(|| Error::internal("the host's memory interface has no copy function"))?;
        // SAFETY: `f` belongs to this memory interface and the stream to the interface's backend.
        // This function requires valid ranges.
        let submitted = Error::check(|err| unsafe { f(memory, stream.raw(), &copy, 1, err) });
        submitted.and_then(|()| self.end()).inspect_err(|_| self.synchronize_or_leak())
    }

    /// Handles a failed operation. No event marks the end of its work, so this function waits for
    /// the whole stream. If the wait fails, leaks the memory.
    fn synchronize_or_leak(&self) {
        if self.state.stream.synchronize().is_err() {
            std::mem::forget(self.buffer.clone());
        }
    }

    /// Copies the bytes that begin at `offset` to the host, and waits for the copy.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> std::result::Result<(), CopyError> {
        let mut read = move || {
            let stream = self.begin()?;
            let mut copies = Copies::new();
            copies.push_to_host(to, &self.buffer, offset)?;
            copies.submit(stream)
        };
        read().map_err(|error| CopyError { error, in_use: self.state.stream.synchronize().is_err() })
    }

    /// Copies host bytes into the memory at `offset`, and waits for the copy.
    pub fn write(&self, offset: usize, from: &[u8]) -> std::result::Result<(), CopyError> {
        let target = self.buffer.slice(offset, from.len());
        let target = target.map_err(|error| CopyError { error, in_use: false })?;
        let device = self.state.device();
        let source = (Device::CPU, from.as_ptr() as u64);
        // SAFETY: the target is in the buffer. The source must be valid until the stream has
        // completed. This function waits for the stream. If the wait fails, the caller leaks the
        // source.
        let submitted = unsafe { self.copy((device, target.address()), source, from.len()) };
        let completed = self.state.stream.synchronize();
        let in_use = completed.is_err();
        submitted.and(completed).map_err(|error| CopyError { error, in_use })
    }

    /// Submits a copy from another buffer into the memory at `offset`.
    ///
    /// # Errors
    /// If the ranges overlap.
    pub fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, bytes: usize) -> Result<()> {
        let target = self.buffer.slice(offset, bytes)?;
        let source = from.buffer.slice(from_offset, bytes)?;
        let overlap = source.address() + bytes as u64 > target.address()
            && target.address() + bytes as u64 > source.address();
        if overlap {
            return Err(Error::invalid_argument(format!(
                "the source of {bytes} bytes at {:#x} and the target at {:#x} overlap: copy through another buffer",
                source.address(),
                target.address()
            )));
        }
        let (stream, from_stream) = (&self.state.stream, &from.state.stream);
        // Work on a buffer of another session runs on that session's stream.
        let is_other_stream = stream.raw() != from_stream.raw();
        from.begin()?;
        if is_other_stream {
            wait_for(stream, from_stream)?;
        }
        let (to, at) = ((self.state.device(), target.address()), (from.state.device(), source.address()));
        // SAFETY: both ranges are in their buffers. `copy` keeps the target's buffer allocated
        // until the copy has run, and `from.end()` keeps the source's buffer allocated. If
        // `from.end()` fails, the code below waits for the copy, or leaks the source's buffer.
        unsafe { self.copy(to, at, bytes) }?;
        let ended = match is_other_stream {
            true => wait_for(from_stream, stream).and_then(|()| from.end()),
            false => from.end(),
        };
        ended.inspect_err(|_| {
            if stream.synchronize().is_err() {
                std::mem::forget(from.buffer.clone());
            }
        })
    }
}

/// Makes `stream` wait for the work submitted so far to `other`, which may belong to another
/// backend.
fn wait_for(stream: &Stream, other: &Stream) -> Result<()> {
    let ready = other.record()?;
    let owner = ForeignOwner::new(ready.clone());
    // SAFETY: `owner` keeps `ready` and its event alive.
    stream.wait(&unsafe { Ready::from_sync_event(ready.sync_event(), &owner) })
}
