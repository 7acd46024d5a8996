//! One holder of memory: what the functions that cross the boundary do, in Rust.

mod reserved;
mod streams;
mod work;

pub use reserved::Reserved;

use std::ffi::c_void;
use std::fmt::Display;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::backend::{Backend, Inner};
use crate::device::{DeviceBackend, Stream};
use crate::ledger::{AccountUse, Page};
use crate::outside::Charge;
use crate::resource::{Counted, MAX_ALIGNMENT, MIN_ALIGNMENT, Refusal, Region, Request, Resource, Uses};
use crate::trace::{self, Caller};
use crate::vtable;

/// A plugin instance's view of the memory. It stays open while there is an `Arc` of it or a block that was allocated
/// through it.
pub struct Account {
    table: abi::Memory,
    backend: Arc<Inner>,
    page: Arc<Page>,
}

// SAFETY: the one field that is not `Sync` by itself, `table`, is constant; its pointer is to this very account.
unsafe impl Send for Account {}
// SAFETY: as above.
unsafe impl Sync for Account {}

/// A block that somebody holds. Its address is the handle that crosses the boundary.
pub(crate) struct Block {
    account: Arc<Account>,
    device_index: usize,
    region: Region,
    from: From,
}

/// Which of a device's resources.
#[derive(Clone, Copy)]
enum From {
    Pool,
    Shareable,
    Exportable,
}

impl From {
    fn of(self, device: &dyn DeviceBackend) -> Option<&dyn Resource> {
        match self {
            Self::Pool => Some(device.memory()),
            Self::Shareable => device.shareable(),
            Self::Exportable => device.exportable(),
        }
    }
}

impl Account {
    pub(crate) fn open(backend: Arc<Inner>, name: &str) -> Arc<Self> {
        let page = backend.books().open(name, backend.host_devices());
        Arc::new_cyclic(|account| Self { table: vtable::table(account.as_ptr()), backend, page })
    }

    /// The interface `crossdock.host.memory/1` over this account. Its address stays the same, and it works as long as
    /// there is an `Arc` of the account.
    pub fn memory(&self) -> *const abi::Memory {
        &self.table
    }

    /// The name that it was opened under.
    pub fn name(&self) -> &str {
        self.page.name()
    }

    /// What it holds and has done.
    pub fn usage(&self) -> AccountUse {
        self.page.read()
    }

    /// Whether it is one of this backend's.
    pub fn is_of(&self, backend: &Backend) -> bool {
        backend.is(&self.backend)
    }

    pub(crate) fn backend(&self) -> &Inner {
        &self.backend
    }

    /// Whether calls are recorded.
    pub fn is_traced(&self) -> bool {
        self.backend.trace().is_some()
    }

    /// Charges the budget, until the charge is dropped, with what of these ranges of host memory (address and bytes, none twice) lies in
    /// no block of this backend: what was handed over without having been taken from it. `None` where there is no budget, or
    /// no such byte.
    ///
    /// # Errors
    /// There is no room: who handed over how much, and who holds the rest.
    pub fn charge_outside(&self, ranges: impl Iterator<Item = (u64, u64)>) -> Result<Option<Charge>> {
        let Some(outside) = self.backend.outside() else { return Ok(None) };
        let bytes = usize::try_from(outside.bytes_outside(ranges)).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Ok(None);
        }
        let charged = self.backend.charge(bytes).map(|()| outside.charged_now(self.name(), bytes));
        charged.map(Some).map_err(|refusal| {
            Error::out_of_memory(format!(
                "'{}' handed over {bytes} bytes in memory of its own, not of the host's: {refusal}; {}. A plugin that allocates \
                 from its host is refused before it takes memory",
                self.name(),
                self.backend.held_in_words()
            ))
        })
    }

    /// Runs `f`, a call of the plugin's function `what`, and records it where calls are recorded.
    ///
    /// # Errors
    /// What `f` gives.
    pub fn call<T, E: Display>(&self, what: &str, f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        trace::record(self.backend.trace(), Caller::Host, self.name(), what, f)
    }

    /// Runs `f`, which the plugin calls as the host's function `what`, and records it where calls are recorded.
    ///
    /// # Errors
    /// What `f` gives.
    pub fn called<T, E: Display>(&self, what: &str, f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        trace::record(self.backend.trace(), Caller::Plugin, self.name(), what, f)
    }

    fn shared(&self) -> Arc<Self> {
        let account = self.table.private_data.cast::<Self>().cast_const();
        // SAFETY: `open` is the only maker of accounts, puts each into an `Arc` and its address there into `table`;
        // that `Arc` is alive because `self` is.
        unsafe {
            Arc::increment_strong_count(account);
            Arc::from_raw(account)
        }
    }

    /// # Safety
    /// As [`Inner::stream`].
    pub(crate) unsafe fn allocate(
        &self,
        device: Device,
        bytes: usize,
        alignment: usize,
        stream: *mut abi::Stream,
    ) -> Result<abi::Allocation> {
        if device.r#type == abi::DEVICE_CUDA_MANAGED {
            return Err(Error::unsupported(format!(
                "alloc on {device}: managed memory is not made here; expected {}",
                Device::cuda(device.id)
            )));
        }
        let index = self.backend.index_of(device)?;
        // SAFETY: by this function's own contract.
        let stream = match unsafe { self.backend.stream(stream) }? {
            None => self.backend.default_stream(index)?,
            Some(stream) if stream.device_index == index => stream,
            Some(stream) => {
                let other = self.backend.device(stream.device_index)?.describe().device;
                return Err(Error::invalid_argument(format!(
                    "alloc on {device} was given a stream of {other}; expected one of {device}"
                )));
            }
        };
        if (alignment != 0 && !alignment.is_power_of_two()) || alignment > MAX_ALIGNMENT {
            return Err(Error::invalid_argument(format!(
                "alloc: expected an alignment that is a power of two up to {MAX_ALIGNMENT}, got {alignment}"
            )));
        }
        let on = self.backend.device(index)?;
        // A stranger's stream may be gone when the block comes back.
        let home = if stream.adopted { self.backend.default_stream(index)? } else { stream };
        if on.stream_is_capturing(stream)? || on.stream_is_capturing(home)? {
            return Err(Error::device(format!(
                "alloc on {device}: the stream is under graph capture, and the block would belong to the graph; end the \
                 capture first"
            )));
        }
        let request = Request { bytes, alignment: alignment.max(MIN_ALIGNMENT) };
        let allocation = self.block(index, From::Pool, request, home)?;
        if stream.adopted
            && let Err(error) = on.stream_follow(stream, home)
        {
            // SAFETY: made just now, and nobody has seen it.
            unsafe { Block::free(allocation.block, &[], false) };
            return Err(error.context(format_args!("alloc on {device}")));
        }
        Ok(allocation)
    }

    /// Host memory that the devices of CUDA reach at full speed, once one has been started.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<abi::Allocation> {
        let index = self.backend.pinned_index();
        let request = Request { bytes, alignment: MIN_ALIGNMENT };
        self.block(index, From::Pool, request, self.backend.default_stream(index)?)
    }

    /// Memory on a CUDA device that other processes can be given by [`crate::Backend::export_ipc`], usable at once on every
    /// stream. It is counted and limited like any other, and goes back like any other: through `free` of a memory object of
    /// this backend, after its last use, while nobody waits. The device takes it in pieces of 2 MiB, and getting it takes
    /// 40 microseconds and more, so that this is for what is shared and nothing else.
    ///
    /// # Errors
    /// `device` is no CUDA device that is there; no memory is left, of it or of the budget.
    pub fn allocate_shareable(&self, device: Device, bytes: usize) -> Result<abi::Allocation> {
        self.allocate_for_others(device, bytes, From::Shareable)
    }

    /// Memory on a CUDA device that goes to other processes as an open file, by [`crate::Backend::export_file`]. It stays there as
    /// long as any process has the file, or has it mapped, whatever becomes of this one; for the rest it is as what
    /// [`Account::allocate_shareable`] gives.
    ///
    /// # Errors
    /// As there.
    pub fn allocate_exportable(&self, device: Device, bytes: usize) -> Result<abi::Allocation> {
        self.allocate_for_others(device, bytes, From::Exportable)
    }

    fn allocate_for_others(&self, device: Device, bytes: usize, from: From) -> Result<abi::Allocation> {
        let index = self.backend.index_of(device)?;
        if from.of(self.backend.device(index)?).is_none() {
            return Err(Error::unsupported(format!(
                "memory of {device} cannot be shared with other processes through CUDA IPC; expected a CUDA device"
            )));
        }
        let request = Request { bytes, alignment: MIN_ALIGNMENT };
        self.block(index, from, request, self.backend.default_stream(index)?)
    }

    fn block(&self, index: usize, from: From, request: Request, stream: &Stream) -> Result<abi::Allocation> {
        let none = || Error::internal("a device without such memory");
        let memory = from.of(self.backend.device(index)?).ok_or_else(none)?;
        let region = self.region(index, memory, request, stream)?;
        let address = region.address.as_ptr().cast();
        if let Some(outside) = self.backend.outside() {
            outside.took(region.address.as_ptr() as u64, request.bytes as u64);
        }
        let block = Box::new(Block { account: self.shared(), device_index: index, region, from });
        Ok(abi::Allocation { address, bytes: request.bytes, block: Box::into_raw(block).cast() })
    }

    /// The memory itself; where there is none, once more without what the pools keep.
    fn region(
        &self,
        index: usize,
        memory: &dyn Resource,
        request: Request,
        stream: &Stream,
    ) -> Result<Region> {
        self.backend.extend(&self.page, index);
        let memory = Counted::new(memory, &*self.page, index);
        let first = memory.allocate(request, stream);
        let last = match first {
            Err(Refusal::OverLimit { left_bytes, .. }) => {
                match self.backend.trim(request.bytes.saturating_sub(left_bytes)) {
                    0 => first,
                    _ => memory.allocate(request, stream),
                }
            }
            // Also where nothing could be trimmed: while the driver refuses somebody else far too much, it refuses others
            // little.
            Err(Refusal::System { .. } | Refusal::Device(_)) => {
                self.backend.trim(usize::MAX);
                memory.allocate(request, stream)
            }
            _ => first,
        };
        last.map_err(|refusal| self.backend.explain(refusal, self.name(), request.bytes, index))
    }

    pub(crate) fn pointer(&self, address: *const c_void) -> Result<(Device, usize, usize)> {
        if address.is_null() {
            return Err(Error::invalid_argument("pointer: the address is NULL"));
        }
        let place = self.backend.owner_of(address)?;
        Ok((place.device, place.base, place.bytes))
    }

    pub(crate) fn host_address(&self, device: Device, address: *const c_void, bytes: usize) -> *mut c_void {
        let device = self.backend.index_of(device).and_then(|index| self.backend.device(index));
        device.map_or(std::ptr::null_mut(), |device| device.host_address(address, bytes))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.backend.books().close(&self.page);
    }
}

impl Block {
    /// Gives the memory back to the account that allocated it.
    ///
    /// # Safety
    /// `handle` came from [`Account::allocate`] and is given back once.
    pub(crate) unsafe fn free(handle: *mut abi::Block, uses: Uses<'_>, lent: bool) {
        // SAFETY: a block's handle is its Box, by this function's own contract.
        let block = unsafe { Box::from_raw(handle.cast::<Block>()) };
        if block.account.backend.is_inherited() {
            return std::mem::forget(block);
        }
        let Block { account, device_index, region, from } = *block;
        if let Some(outside) = account.backend.outside() {
            outside.gave_back(region.address.as_ptr() as u64);
        }
        let device = account.backend.device(device_index).ok();
        if let Some(memory) = device.and_then(|device| from.of(device)) {
            Counted::new(memory, &*account.page, device_index).release(region, uses, lent);
        }
    }
}
