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
    /// Creates a buffer over a range of foreign memory. The memory is released once `owner` and its
    /// last buffer have been dropped, and all work that was enqueued through this crate on the
    /// memory is complete. `bytes` is `None` if the length is unknown.
    ///
    /// # Safety
    /// Once `ready` has passed, `address..+bytes` is readable memory of `device`. The memory and
    /// the event in `ready` stay valid until they are released through `owner`. A range of unknown
    /// length has at least the number of bytes that its array requires.
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

    /// Sets the length in bytes. The caller has computed it from the contents of the array: from an
    /// offset that it read from the device, or as the width of the type times the number of values.
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

    /// Returns the range `offset..offset + bytes` as a buffer. Returns an error if the length of
    /// this buffer is unknown, or if the range lies outside this buffer.
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

    /// Gives the host read access to all bytes: in place if the host can dereference their address,
    /// otherwise in a copy, which the ledger counts. Blocks this thread until the bytes are ready.
    pub fn host_view(&self, stream: &Stream) -> Result<HostView<'_>> {
        let bytes = self
            .len()
            .ok_or_else(|| Error::internal("cannot view a buffer of unknown length on the host"))?;
        HostView::new(self, 0, bytes, stream)
    }

    /// Gives the host read access to the range `offset..offset + bytes`, as [`Buffer::host_view`]
    /// does for the whole buffer.
    pub fn host_view_of(&self, offset: usize, bytes: usize, stream: &Stream) -> Result<HostView<'_>> {
        self.check(offset, bytes)?;
        HostView::new(self, offset, bytes, stream)
    }

    /// Marks the memory as exported to another library, which may release it while work of that
    /// library on the memory still runs. The memory is then reused only once all work in flight on
    /// its device has run. Memory that the host and plugins exchange need not be marked, because
    /// hosts and plugins complete their work on memory before they release the memory.
    pub fn mark_exported(&self) {
        self.owner.note_exported();
    }

    /// Marks the buffer as used by the work enqueued on `stream` so far. The memory is not released
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
    /// Creates an owner that releases the memory by dropping `owner`.
    pub fn new(owner: impl Any + Send + Sync) -> Self {
        Self(Owner::foreign(Box::new(owner)))
    }

    /// Creates the owner of memory on `device` that was received across the plugin boundary. The
    /// producer relies on this side to track whether other libraries use the memory; see
    /// [`Buffer::mark_exported`].
    pub fn from_peer(owner: impl Any + Send + Sync, device: Device, memory: &Memory) -> Self {
        match device.r#type {
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_HOST | abi::DEVICE_CUDA_MANAGED => {
                Self(Owner::peer(Box::new(owner), memory.clone()))
            }
            // On host devices, work is complete when the call that enqueues it returns.
            _ => Self::new(owner),
        }
    }

    /// Creates an owner that releases the memory by calling `release` once, after the last use of
    /// the memory. If that use is complete when the last buffer is dropped, the thread that drops
    /// the buffer calls `release`. Otherwise a thread of the host calls it later.
    pub fn on_release(release: impl FnOnce() + Send + 'static) -> Self {
        Self::new(OnRelease(Mutex::new(Some(Box::new(release)))))
    }
}

/// Calls the function when this value is dropped.
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

    /// Wraps a block that the host allocated with a function other than [`Memory::alloc`]. The
    /// block is freed through `memory` when its last buffer is dropped.
    ///
    /// # Safety
    /// The host that `memory` belongs to allocated `block` on `device`. Nothing else uses or frees
    /// the block.
    pub unsafe fn from_block(memory: &Memory, device: Device, block: abi::Allocation) -> Self {
        let owner = Owner::block(memory.clone(), block.block);
        Self::new(owner, memory.clone(), block.address as u64, block.bytes, device)
    }

    /// Wraps writable foreign memory.
    ///
    /// # Safety
    /// `owner` keeps `bytes` writable bytes at `address` on `device` alive. Nothing else reads or
    /// writes these bytes until the work that is enqueued on this buffer has run.
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

    /// Returns the bytes if the host can write them in place; otherwise returns `None`.
    pub fn host_slice_mut(&mut self) -> Option<&mut [u8]> {
        if self.bytes == 0 {
            return Some(&mut []);
        }
        let start = self.memory.host_address(self.device, self.address, self.bytes)?;
        // SAFETY: `host_address` returned the start of `bytes` accessible bytes. `&mut self` is the
        // only reference to them: a `BufferMut` is not cloned, and freezing consumes it. The memory
        // is mapped, so that unwritten bytes have arbitrary values, all of which are valid for u8.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes) })
    }

    /// Makes the buffer immutable. Readers wait for the work on this buffer that was enqueued on
    /// `stream`, which is the stream that wrote the buffer. If [`Stream::native`] was called,
    /// readers wait for all work enqueued so far on `stream`.
    pub fn freeze(self, stream: &Stream) -> Result<Buffer> {
        let ready = stream.record_after_uses(&self.owner)?;
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

    /// Makes the buffer immutable. Readers do not wait, because the host wrote the bytes, or
    /// because the stream that wrote them has run all its work.
    pub fn freeze_now(self) -> Buffer {
        self.freeze_after(Ready::Now)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }
}
