//! Ranges on a device.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::owner::Owner;
use crate::{HostView, Memory, Ready, Stream};

/// Bytes on a device, shared and not changed any more. Clones and slices keep the whole of what they lie in alive.
///
/// The length may be unknown, where the bytes came through a struct that does not tell; see [`Buffer::len`].
#[derive(Clone)]
pub struct Buffer {
    owner: Arc<Owner>,
    address: u64,
    /// `u64::MAX` where nobody said.
    bytes: u64,
    device: Device,
    ready: Ready,
}

const UNKNOWN: u64 = u64::MAX;

impl Buffer {
    /// A range that somebody else owns: `owner` is dropped (which releases it) when the last buffer in it is gone and
    /// our work on it is done. `bytes` is `None` where the size is not known.
    ///
    /// # Safety
    /// `address..+bytes` (if known) is readable memory of `device`, after `ready`, until `owner` is dropped, and so is
    /// the event in `ready`. Where no size is known, the range is as long as the array that it becomes a part of says.
    pub unsafe fn foreign(
        owner: &ForeignOwner,
        device: Device,
        address: u64,
        bytes: Option<u64>,
        ready: Ready,
    ) -> Self {
        Self { owner: owner.0.clone(), address, bytes: bytes.unwrap_or(UNKNOWN), device, ready }
    }

    /// Where it begins, on its device: a number, not something to dereference.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes, `None` where nobody said.
    pub fn len(&self) -> Option<usize> {
        (self.bytes != UNKNOWN).then_some(self.bytes as usize)
    }

    /// Whether it is known to have no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.device
    }

    /// When it may be read.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The same range with its length made known. The caller has it from what the range holds (an offset read from
    /// the device, a type's width times a length). Where a length was known, a longer one is refused.
    ///
    /// # Safety
    /// Where no length was known, there are that many bytes, as its producer vouches.
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

    /// `bytes` bytes from `offset` on, in the same memory. Of unknown length there are none to be had.
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

    /// Its bytes, for the host: in place where the host may look, else copied (and counted). Blocks until they are
    /// there.
    pub fn host_view(&self, stream: &Stream) -> Result<HostView<'_>> {
        let bytes = self
            .len()
            .ok_or_else(|| Error::internal("a buffer of unknown length was asked for its bytes"))?;
        HostView::new(self, 0, bytes, stream)
    }

    /// Some of its bytes, likewise.
    pub fn host_view_of(&self, offset: usize, bytes: usize, stream: &Stream) -> Result<HostView<'_>> {
        self.check(offset, bytes)?;
        HostView::new(self, offset, bytes, stream)
    }

    /// Another library is about to see it, which may release it while its own work still runs: its memory is reused only
    /// after everything in flight on its device. Not needed for what passes between host and plugin, each of which has
    /// finished with what it releases.
    pub fn mark_lent(&self) {
        self.owner.note_lent();
    }

    /// Work that `stream` has been given so far uses the range: it must not go back before that has run.
    pub fn mark_used(&self, stream: &Stream) -> Result<()> {
        stream.note_uses(Ok(()), || std::iter::once(&*self.owner))
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether both lie in one allocation, or in one stranger's array.
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

/// What keeps a stranger's memory alive, shared by the buffers that lie in it.
#[derive(Clone)]
pub struct ForeignOwner(Arc<Owner>);

impl ForeignOwner {
    /// `owner`'s drop is the release.
    pub fn new(owner: impl Any + Send + Sync) -> Self {
        Self(Owner::foreign(Box::new(owner)))
    }

    /// The same for what came from the other side of the plugin boundary, and lies on `device`: its maker relies on us for
    /// what other libraries do with it. See [`Buffer::mark_lent`].
    pub fn peer(owner: impl Any + Send + Sync, device: Device, memory: &Memory) -> Self {
        match device.r#type {
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_HOST | abi::DEVICE_CUDA_MANAGED => {
                Self(Owner::peer(Box::new(owner), memory.clone()))
            }
            // Elsewhere work is done when a call returns.
            _ => Self::new(owner),
        }
    }

    /// The same with a function for the release. It runs once: after our last use, on a thread of the host's where that
    /// use is still to come, else where the last buffer is dropped.
    pub fn on_release(release: impl FnOnce() + Send + 'static) -> Self {
        Self::new(OnRelease(Mutex::new(Some(Box::new(release)))))
    }
}

/// Calls what it holds when it goes.
struct OnRelease(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for OnRelease {
    fn drop(&mut self) {
        if let Some(release) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            release();
        }
    }
}

/// Bytes on a device that one holder may still write.
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

    /// A block that the host's owner of memory gave in another way than [`Memory::alloc`]. It goes back to `memory` when
    /// the last buffer in it is gone.
    ///
    /// # Safety
    /// `block` is one of `device`, of the host that `memory` belongs to, and nobody else has it or gives it back.
    pub unsafe fn from_block(memory: &Memory, device: Device, block: abi::Allocation) -> Self {
        let owner = Owner::block(memory.clone(), block.block);
        Self::new(owner, memory.clone(), block.address as u64, block.bytes, device)
    }

    /// Somebody else's memory, to be written here.
    ///
    /// # Safety
    /// `owner` keeps `bytes` bytes at `address` on `device`, which may be written, and nobody else looks at them until all that is
    /// enqueued here has run.
    pub unsafe fn foreign(
        memory: &Memory,
        owner: &ForeignOwner,
        device: Device,
        address: u64,
        bytes: usize,
    ) -> Self {
        Self::new(owner.0.clone(), memory.clone(), address, bytes, device)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where it begins, on its device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Its bytes where the host may write them in place; `None` on other devices.
    pub fn host_slice_mut(&mut self) -> Option<&mut [u8]> {
        if self.bytes == 0 {
            return Some(&mut []);
        }
        let start = self.memory.host_address(self.device, self.address, self.bytes)?;
        // SAFETY: the host says that it may touch these `bytes` bytes of its own block, which `&mut self` alone refers
        // to: a `BufferMut` is not cloned, and freezing consumes it. Any byte is a valid u8; blocks are memory that the
        // host mapped, so reading before writing yields arbitrary bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes) })
    }

    /// No more writing: readers wait for what `stream`, on which it was written, has been given so far.
    pub fn freeze(self, stream: &Stream) -> Result<Buffer> {
        let ready = stream.record()?;
        Ok(self.freeze_after(ready))
    }

    /// No more writing; readers wait for `ready`.
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

    /// No more writing, by the host or by a stream that was waited for.
    pub fn freeze_now(self) -> Buffer {
        self.freeze_after(Ready::Now)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }
}
