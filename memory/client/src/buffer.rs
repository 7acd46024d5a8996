//! Buffers: ranges of bytes on a device.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::owner::Owner;
use crate::{HostView, Memory, Ready, Stream};

/// Immutable, shared bytes on a device. Clones and slices keep the whole allocation alive.
///
/// The length is unknown if the bytes came through a struct that has no field for it; see
/// [`Buffer::len`].
#[derive(Clone)]
pub struct Buffer {
    owner: Arc<Owner>,
    address: u64,
    /// `UNKNOWN` if the length is unknown.
    bytes: u64,
    device: Device,
    ready: Ready,
}

const UNKNOWN: u64 = u64::MAX;

impl Buffer {
    /// A range of foreign memory. `owner` is dropped, which releases the memory, when its last
    /// buffer has been dropped and our work on it is complete. `bytes` is `None` if the length is
    /// unknown.
    ///
    /// # Safety
    /// Once `ready` has passed, `address..+bytes` is readable memory of `device`. The memory and
    /// the event in `ready` stay valid until `owner` is dropped. A range of unknown length is as
    /// long as the array that it becomes a part of requires.
    pub unsafe fn foreign(
        owner: &ForeignOwner,
        device: Device,
        address: u64,
        bytes: Option<u64>,
        ready: Ready,
    ) -> Self {
        Self { owner: owner.0.clone(), address, bytes: bytes.unwrap_or(UNKNOWN), device, ready }
    }

    /// The address of the first byte on the device. It is a number that the host must not
    /// dereference.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes; `None` if it is unknown.
    pub fn len(&self) -> Option<usize> {
        (self.bytes != UNKNOWN).then_some(self.bytes as usize)
    }

    /// Whether the length is known to be 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The device of the memory.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The event after which the bytes may be read.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Sets the length, which the caller derives from the contents (an offset read from the device,
    /// or the width of a type times a number of values).
    ///
    /// # Errors
    /// If the length is known and shorter than `bytes`.
    ///
    /// # Safety
    /// If the length is unknown, the range has at least `bytes` bytes.
    pub unsafe fn with_len(mut self, bytes: usize) -> Result<Self> {
        if self.bytes != UNKNOWN && bytes as u64 > self.bytes {
            return Err(Error::bad_data(format!(
                "a buffer of {} bytes is too short: {bytes} bytes are needed",
                self.bytes
            )));
        }
        self.bytes = bytes as u64;
        Ok(self)
    }

    /// Returns the range `offset..offset + bytes`. An error if the length is unknown.
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<Self> {
        self.check(offset, bytes)?;
        Ok(Self { address: self.address + offset as u64, bytes: bytes as u64, ..self.clone() })
    }

    pub(crate) fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        let end = (offset as u64).checked_add(bytes as u64);
        let fits = end.is_some_and(|end| {
            end <= self.len().unwrap_or(0) as u64
                && end < i64::MAX as u64
                && self.address.checked_add(end).is_some()
        });
        if fits {
            return Ok(());
        }
        let len = self.len().map_or_else(|| "unknown length".to_string(), |n| format!("{n} bytes"));
        Err(Error::bad_data(format!("bytes {offset}..+{bytes} lie outside a buffer of {len}")))
    }

    /// Gives the host access to all bytes: in place if the host can reach them, else as a copy,
    /// which is counted. Blocks until they are ready.
    pub fn host_view(&self, stream: &Stream) -> Result<HostView<'_>> {
        let bytes = self
            .len()
            .ok_or_else(|| Error::internal("cannot view a buffer of unknown length on the host"))?;
        HostView::new(self, 0, bytes, stream)
    }

    /// Gives the host access to the range `offset..offset + bytes`.
    pub fn host_view_of(&self, offset: usize, bytes: usize, stream: &Stream) -> Result<HostView<'_>> {
        self.check(offset, bytes)?;
        HostView::new(self, offset, bytes, stream)
    }

    /// Marks the memory as exported to another library, which may release it while its own work
    /// still runs. The memory is then reused only after all work in flight on its device. Not
    /// needed between host and plugins, which complete their work before they release.
    pub fn mark_exported(&self) {
        self.owner.note_exported();
    }

    /// Marks the range as used by the work enqueued on `stream` so far. Its memory is not released
    /// before that work has run.
    pub fn mark_used(&self, stream: &Stream) -> Result<()> {
        stream.note_uses(Ok(()), || std::iter::once(&*self.owner))
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether both buffers belong to the same allocation, or to the same external array.
    pub fn same_owner(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len() {
            Some(n) => write!(f, "Buffer({} {:#x}, {n} bytes)", self.device, self.address),
            None => write!(f, "Buffer({} {:#x})", self.device, self.address),
        }
    }
}

/// The owner of foreign memory, shared by the buffers in that memory.
#[derive(Clone)]
pub struct ForeignOwner(Arc<Owner>);

impl ForeignOwner {
    /// Dropping `owner` releases the memory.
    pub fn new(owner: impl Any + Send + Sync) -> Self {
        Self(Owner::foreign(Box::new(owner)))
    }

    /// For memory on `device` that came from the other side of the plugin boundary. Its producer
    /// relies on us to track what other libraries do with it. See [`Buffer::mark_exported`].
    pub fn from_peer(owner: impl Any + Send + Sync, device: Device, memory: &Memory) -> Self {
        match device.r#type {
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_HOST | abi::DEVICE_CUDA_MANAGED => {
                Self(Owner::peer(Box::new(owner), memory.clone()))
            }
            // On host devices, work is complete when the call returns.
            _ => Self::new(owner),
        }
    }

    /// Releases the memory by calling `release`, once: after our last use, on a thread of the host
    /// if that use has not completed yet, else where the last buffer is dropped.
    pub fn on_release(release: impl FnOnce() + Send + 'static) -> Self {
        Self::new(OnRelease(Mutex::new(Some(Box::new(release)))))
    }
}

/// Calls the function when it is dropped.
struct OnRelease(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for OnRelease {
    fn drop(&mut self) {
        if let Some(release) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            release();
        }
    }
}

/// Bytes on a device with a single owner that may write them.
pub struct BufferMut {
    owner: Arc<Owner>,
    memory: Memory,
    address: u64,
    bytes: usize,
    device: Device,
}

impl BufferMut {
    pub(crate) fn new(owner: Arc<Owner>, memory: Memory, address: u64, bytes: usize, device: Device) -> Self {
        Self { owner, memory, address, bytes, device }
    }

    /// Wraps a block that the host's memory allocated in another way than through
    /// [`Memory::alloc`]. It is freed through `memory` when its last buffer is dropped.
    ///
    /// # Safety
    /// `block` is a block on `device` of the host that `memory` belongs to, and nothing else uses
    /// or frees it.
    pub unsafe fn from_block(memory: &Memory, device: Device, block: abi::Allocation) -> Self {
        let owner = Owner::block(memory.clone(), block.block);
        Self::new(owner, memory.clone(), block.address as u64, block.bytes, device)
    }

    /// Wraps writable foreign memory.
    ///
    /// # Safety
    /// `owner` keeps `bytes` writable bytes at `address` on `device` alive, and nothing else reads
    /// or writes them until the work enqueued on them here has run.
    pub unsafe fn foreign(
        memory: &Memory,
        owner: &ForeignOwner,
        device: Device,
        address: u64,
        bytes: usize,
    ) -> Self {
        Self::new(owner.0.clone(), memory.clone(), address, bytes, device)
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the first byte on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The device of the memory.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The bytes, if the host can write them in place; `None` on other devices.
    pub fn host_slice_mut(&mut self) -> Option<&mut [u8]> {
        if self.bytes == 0 {
            return Some(&mut []);
        }
        let start = self.memory.host_address(self.device, self.address, self.bytes)?;
        // SAFETY: `host_address` returned the start of `bytes` accessible bytes. `&mut self` is the
        // only reference to them: a `BufferMut` is not cloned, and freezing consumes it. The host
        // mapped the memory, so that reading unwritten bytes yields arbitrary values, all valid for
        // u8.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes) })
    }

    /// Makes the buffer immutable. Readers wait for the work enqueued so far on `stream`, which
    /// wrote it.
    pub fn freeze(self, stream: &Stream) -> Result<Buffer> {
        let ready = stream.record()?;
        Ok(self.freeze_after(ready))
    }

    /// Makes the buffer immutable. Readers wait for `ready`.
    pub fn freeze_after(self, ready: Ready) -> Buffer {
        self.owner.note_frozen();
        Buffer {
            owner: self.owner,
            address: self.address,
            bytes: self.bytes as u64,
            device: self.device,
            ready,
        }
    }

    /// Makes a buffer immutable that the host wrote, or a stream that has completed.
    pub fn freeze_now(self) -> Buffer {
        self.freeze_after(Ready::Now)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }
}
