//! Implements the memory interface in Rust. Each plugin instance has its own account.

mod reservation;
mod streams;
mod work;

pub use reservation::Reservation;

use std::ffi::c_void;
use std::fmt::Display;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::backend::{Backend, Inner};
use crate::device::{DeviceBackend, Stream};
use crate::foreign::Charge;
use crate::ledger::{AccountCounters, AccountUse};
use crate::resource::{AllocError, Counted, MAX_ALIGNMENT, MIN_ALIGNMENT, Region, Request, Resource, Uses};
use crate::trace::{self, Caller};
use crate::vtable;

/// The memory of one plugin instance. An account stays open while there is an `Arc` of it or a
/// block that was allocated through it.
pub struct Account {
    table: abi::Memory,
    backend: Arc<Inner>,
    counters: Arc<AccountCounters>,
}

// SAFETY: `table` is the only field that is not `Send`. It is constant, and it points to this
// account, whose address is constant.
unsafe impl Send for Account {}
// SAFETY: `table`, the only field that is not `Sync`, is constant.
unsafe impl Sync for Account {}

/// An allocated block. Its address is the handle that crosses the boundary.
pub(crate) struct Block {
    account: Arc<Account>,
    device_index: usize,
    region: Region,
    kind: MemoryKind,
}

/// Selects one of the resources of a device, from which a block was allocated.
#[derive(Clone, Copy)]
enum MemoryKind {
    Pool,
    Shareable,
    Exportable,
    Shared,
}

impl MemoryKind {
    fn resource(self, device: &dyn DeviceBackend) -> Option<&dyn Resource> {
        match self {
            Self::Pool => Some(device.memory()),
            Self::Shareable => device.shareable(),
            Self::Exportable => device.exportable(),
            Self::Shared => device.shared(),
        }
    }
}

impl Account {
    pub(crate) fn open(backend: Arc<Inner>, name: &str) -> Arc<Self> {
        let counters = backend.ledger().open(name, backend.host_devices());
        Arc::new_cyclic(|account| Self { table: vtable::table(account.as_ptr()), backend, counters })
    }

    /// The interface `crossdock.host.memory/1` of this account. Its address is constant, and it is
    /// valid while there is an `Arc` of the account.
    pub fn memory(&self) -> *const abi::Memory {
        &self.table
    }

    /// The name of the account.
    pub fn name(&self) -> &str {
        self.counters.name()
    }

    /// Current allocations, and totals of copies and launches.
    pub fn usage(&self) -> AccountUse {
        self.counters.read()
    }

    /// Whether the account belongs to this backend.
    pub fn belongs_to(&self, backend: &Backend) -> bool {
        backend.is_same(&self.backend)
    }

    pub(crate) fn backend(&self) -> &Inner {
        &self.backend
    }

    /// Whether calls are traced.
    pub fn is_traced(&self) -> bool {
        self.backend.trace().is_some()
    }

    /// Charges the budget for foreign memory that the plugin handed over, until the returned charge
    /// is dropped. `ranges` are ranges of host memory (address and length in bytes) without
    /// duplicates. Ranges in blocks of this backend are not charged. Returns `None` if there is no
    /// budget, or if no bytes need to be charged.
    ///
    /// # Errors
    /// Out of memory if fewer bytes are left in the budget. The error names this account and the
    /// current allocations.
    pub fn charge_foreign(&self, ranges: impl Iterator<Item = (u64, u64)>) -> Result<Option<Charge>> {
        let Some(foreign) = self.backend.foreign() else { return Ok(None) };
        let bytes = usize::try_from(foreign.foreign_bytes(ranges)).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Ok(None);
        }
        let charge = self.backend.charge(bytes).map(|()| foreign.add_charge(self.name(), bytes));
        charge.map(Some).map_err(|error| {
            Error::out_of_memory(format!(
                "'{}' handed over {bytes} bytes in memory of its own: {error}; {}. Memory that a plugin allocates \
                 from its host is counted when it is allocated",
                self.name(),
                self.backend.describe_usage()
            ))
        })
    }

    /// Runs `f`, in which the host calls the plugin's function `what`. Records the call if calls
    /// are traced.
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn trace_host_call<T, E: Display>(
        &self,
        what: &str,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        trace::record(self.backend.trace(), Caller::Host, self.name(), what, f)
    }

    /// Runs `f`, in which the plugin calls the host's function `what`. Records the call if calls
    /// are traced.
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn trace_plugin_call<T, E: Display>(
        &self,
        what: &str,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        trace::record(self.backend.trace(), Caller::Plugin, self.name(), what, f)
    }

    fn shared(&self) -> Arc<Self> {
        let account = self.table.private_data.cast::<Self>().cast_const();
        // SAFETY: `open` is the only constructor. It puts every account into an `Arc` and its
        // address into `table`; that `Arc` is alive because `self` is.
        unsafe {
            Arc::increment_strong_count(account);
            Arc::from_raw(account)
        }
    }

    /// # Safety
    /// `stream` is NULL or a live stream of a backend.
    pub(crate) unsafe fn allocate(
        &self,
        device: Device,
        bytes: usize,
        alignment: usize,
        stream: *mut abi::Stream,
    ) -> Result<abi::Allocation> {
        if device.r#type == abi::DEVICE_CUDA_MANAGED {
            return Err(Error::unsupported(format!(
                "alloc on {device}: managed memory cannot be allocated here; expected {}",
                Device::cuda(device.id)
            )));
        }
        let index = self.backend.index_of(device)?;
        // SAFETY: `stream` is NULL or live by this function's contract.
        let stream = match unsafe { self.backend.stream(stream) }? {
            None => self.backend.default_stream(index)?,
            Some(stream) if stream.device_index == index => stream,
            Some(stream) => {
                let other = self.backend.device(stream.device_index)?.describe().device;
                return Err(Error::invalid_argument(format!(
                    "alloc on {device}: the stream belongs to {other}; expected a stream of {device}"
                )));
            }
        };
        if (alignment != 0 && !alignment.is_power_of_two()) || alignment > MAX_ALIGNMENT {
            return Err(Error::invalid_argument(format!(
                "alloc: expected an alignment that is a power of two up to {MAX_ALIGNMENT}, got {alignment}"
            )));
        }
        let device_backend = self.backend.device(index)?;
        // An external stream may have been destroyed by the time the block is freed, so the block
        // then belongs to the default stream.
        let home = if stream.adopted { self.backend.default_stream(index)? } else { stream };
        if device_backend.stream_is_capturing(stream)? || device_backend.stream_is_capturing(home)? {
            return Err(Error::device(format!(
                "alloc on {device}: the stream is under graph capture, and the block would belong to the graph; end the \
                 capture first"
            )));
        }
        let request = Request { bytes, alignment: alignment.max(MIN_ALIGNMENT) };
        let allocation = self.block(index, MemoryKind::Pool, request, home)?;
        if stream.adopted
            && let Err(error) = device_backend.stream_follow(stream, home)
        {
            // SAFETY: the block was allocated above, and nothing else has its handle.
            unsafe { Block::free(allocation.block, &[], false) };
            return Err(error.context(format_args!("alloc on {device}")));
        }
        Ok(allocation)
    }

    /// Allocates host memory. If a CUDA device has been started, the memory is pinned, so that CUDA
    /// devices access it at full speed.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<abi::Allocation> {
        let index = self.backend.pinned_index();
        let request = Request { bytes, alignment: MIN_ALIGNMENT };
        self.block(index, MemoryKind::Pool, request, self.backend.default_stream(index)?)
    }

    /// Allocates memory on a CUDA device that [`crate::Backend::export_ipc`] can share with other
    /// processes. The memory can be used at once on every stream. It is counted and limited like
    /// any other memory. `free` of any memory object of this backend frees it after its last use,
    /// without blocking. The device allocates it in units of 2 MiB, and each allocation takes at
    /// least 40 µs. Therefore use this function only for memory that is shared.
    ///
    /// # Errors
    /// If `device` is not an existing CUDA device, or if the device or the budget has no memory
    /// left.
    pub fn allocate_shareable(&self, device: Device, bytes: usize) -> Result<abi::Allocation> {
        self.allocate_kind(device, bytes, MemoryKind::Shareable)
    }

    /// Allocates memory on a CUDA device that [`crate::Backend::export_file`] can pass to other
    /// processes as an open file. The memory exists as long as any process has the file open or
    /// mapped, even after this process has ended. In all other respects, it behaves like memory of
    /// [`Account::allocate_shareable`].
    ///
    /// # Errors
    /// The errors of [`Account::allocate_shareable`].
    pub fn allocate_exportable(&self, device: Device, bytes: usize) -> Result<abi::Allocation> {
        self.allocate_kind(device, bytes, MemoryKind::Exportable)
    }

    /// Allocates memory like [`Account::allocate_exportable`], for processes that trust each other,
    /// on a CUDA device or on the host. After it was freed, the memory is reused. So memory of a
    /// CUDA device must not be freed before all processes that opened it have unmapped it; see
    /// [`crate::FileMemory::with_lease`]. Host memory may be freed before that.
    ///
    /// # Errors
    /// The errors of [`Account::allocate_shareable`].
    pub fn allocate_shared(&self, device: Device, bytes: usize) -> Result<abi::Allocation> {
        self.allocate_kind(device, bytes, MemoryKind::Shared)
    }

    fn allocate_kind(&self, device: Device, bytes: usize, kind: MemoryKind) -> Result<abi::Allocation> {
        let index = self.backend.index_of(device)?;
        if kind.resource(self.backend.device(index)?).is_none() {
            return Err(Error::unsupported(format!(
                "this kind of memory, which other processes open, does not exist on {device}; expected a CUDA device"
            )));
        }
        let request = Request { bytes, alignment: MIN_ALIGNMENT };
        self.block(index, kind, request, self.backend.default_stream(index)?)
    }

    fn block(
        &self,
        index: usize,
        kind: MemoryKind,
        request: Request,
        stream: &Stream,
    ) -> Result<abi::Allocation> {
        let missing = || Error::internal("the device does not have this kind of memory");
        let memory = kind.resource(self.backend.device(index)?).ok_or_else(missing)?;
        let region = self.region(index, memory, request, stream)?;
        let address = region.address.as_ptr().cast();
        if let Some(foreign) = self.backend.foreign() {
            foreign.add_block(region.address.as_ptr() as u64, request.bytes as u64);
        }
        let block = Box::new(Block { account: self.shared(), device_index: index, region, kind });
        Ok(abi::Allocation { address, bytes: request.bytes, block: Box::into_raw(block).cast() })
    }

    /// Allocates a region; if that fails, tries once more after trimming the pools.
    fn region(
        &self,
        index: usize,
        memory: &dyn Resource,
        request: Request,
        stream: &Stream,
    ) -> Result<Region> {
        self.backend.add_devices(&self.counters, index);
        let memory = Counted::new(memory, &*self.counters, index);
        let result = memory.allocate(request, stream);
        let result = match result {
            Err(AllocError::OverLimit { left_bytes, .. }) => {
                match self.backend.trim(request.bytes.saturating_sub(left_bytes)) {
                    0 => result,
                    _ => memory.allocate(request, stream),
                }
            }
            // Tries again even if nothing was trimmed, because the driver may reject a small
            // allocation while another thread requests more memory than the device has.
            Err(AllocError::System { .. } | AllocError::Device(_)) => {
                self.backend.trim(usize::MAX);
                memory.allocate(request, stream)
            }
            _ => result,
        };
        result.map_err(|error| self.backend.explain(error, self.name(), request.bytes, index))
    }

    pub(crate) fn pointer(&self, address: *const c_void) -> Result<(Device, usize, usize)> {
        if address.is_null() {
            return Err(Error::invalid_argument("pointer: the address is NULL"));
        }
        let location = self.backend.locate(address)?;
        Ok((location.device, location.base, location.bytes))
    }

    pub(crate) fn host_address(&self, device: Device, address: *const c_void, bytes: usize) -> *mut c_void {
        let device = self.backend.index_of(device).and_then(|index| self.backend.device(index));
        device.map_or(std::ptr::null_mut(), |device| device.host_address(address, bytes))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.backend.ledger().close(&self.counters);
    }
}

impl Block {
    /// Frees the block through the account that allocated it.
    ///
    /// # Safety
    /// `handle` came from an allocation of an account of this crate, and is freed only once.
    pub(crate) unsafe fn free(handle: *mut abi::Block, uses: Uses<'_>, exported: bool) {
        // SAFETY: by this function's contract `handle` is a block of this crate. The handle of a
        // block is the pointer of its `Box`.
        let block = unsafe { Box::from_raw(handle.cast::<Block>()) };
        if block.account.backend.is_inherited() {
            return std::mem::forget(block);
        }
        let Block { account, device_index, region, kind } = *block;
        if let Some(foreign) = account.backend.foreign() {
            foreign.remove_block(region.address.as_ptr() as u64);
        }
        let device = account.backend.device(device_index).ok();
        if let Some(memory) = device.and_then(|device| kind.resource(device)) {
            Counted::new(memory, &*account.counters, device_index).release(region, uses, exported);
        }
    }
}
