//! One holder of memory: what the functions that cross the boundary do, in Rust.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::backend::Inner;
use crate::device::{DeviceBackend, Found, Stream};
use crate::fault::Operation;
use crate::ledger::{AccountUse, Page};
use crate::resource::{Counted, MAX_ALIGNMENT, MIN_ALIGNMENT, Refusal, Region, Request, Resource, Uses};
use crate::vtable;

/// A plugin instance's view of the memory. It stays open while there is an `Arc` of it or a block that was allocated
/// through it.
pub struct Account {
    table: abi::Memory,
    backend: Arc<Inner>,
    page: Arc<Page>,
    /// By device.
    memory: Vec<Counted<DeviceMemory>>,
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
}

impl Account {
    pub(crate) fn open(backend: Arc<Inner>, name: &str) -> Arc<Self> {
        let page = backend.books().open(name, backend.devices().map(|device| device.describe().device));
        let memory = |device_index| {
            let shared = DeviceMemory { backend: backend.clone(), device_index };
            Counted::new(shared, page.clone(), device_index)
        };
        let memory = (0..backend.devices().count()).map(memory).collect();
        Arc::new_cyclic(|account| Self { table: vtable::table(account.as_ptr()), backend, page, memory })
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

    pub(crate) fn backend(&self) -> &Inner {
        &self.backend
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
        let request = Request { bytes, alignment: alignment.max(MIN_ALIGNMENT) };
        let region = self.region(index, request, stream)?;
        let address = region.address.as_ptr().cast();
        let block = Box::new(Block { account: self.shared(), device_index: index, region });
        Ok(abi::Allocation { address, bytes, block: Box::into_raw(block).cast() })
    }

    /// The memory itself; where there is none, once more without what the pools keep.
    fn region(&self, index: usize, request: Request, stream: &Stream) -> Result<Region> {
        let memory =
            self.memory.get(index).ok_or_else(|| Error::internal(format!("no device has index {index}")))?;
        let first = memory.allocate(request, stream);
        let last = match first {
            Err(Refusal::OverLimit { left_bytes, .. }) => {
                match self.backend.trim(request.bytes.saturating_sub(left_bytes)) {
                    0 => first,
                    _ => memory.allocate(request, stream),
                }
            }
            Err(Refusal::System { .. }) if self.backend.trim(usize::MAX) > 0 => {
                memory.allocate(request, stream)
            }
            _ => first,
        };
        last.map_err(|refusal| self.backend.explain(refusal, self.name(), request.bytes, index))
    }

    /// # Safety
    /// The stream as in [`Inner::stream`]; the ranges are memory of the devices that they name, and stay allocated
    /// until the copies have run.
    pub(crate) unsafe fn copy(&self, stream: *mut abi::Stream, copies: &[abi::Copy]) -> Result<()> {
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.backend.stream(stream) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        // All are checked before the first one runs.
        for (i, copy) in copies.iter().enumerate() {
            self.sides(copy).map_err(|e| e.context(format_args!("copy {i}")))?;
        }
        for copy in copies {
            let Sides { to, to_address, from, from_address } = self.sides(copy)?;
            let (to_host, from_host) = (to.describe().host_accessible, from.describe().host_accessible);
            let engine = if to_host { from } else { to };
            let stream = match stream {
                Some(stream) => stream,
                None => self.backend.default_stream(self.backend.index_of(engine.describe().device)?)?,
            };
            // SAFETY: both were resolved for `bytes` bytes; that they are what the caller says is its own word.
            unsafe { engine.copy(stream, to_address, from_address, copy.bytes) }?;
            self.page.copied(from_host, to_host, copy.bytes);
        }
        Ok(())
    }

    fn sides(&self, copy: &abi::Copy) -> Result<Sides<'_>> {
        let to = self.backend.device(self.backend.index_of(copy.to_device)?)?;
        let from = self.backend.device(self.backend.index_of(copy.from_device)?)?;
        let to_address = to.resolve(copy.to, copy.bytes).map_err(|e| e.context("target"))?;
        let from_address = from.resolve(copy.from, copy.bytes).map_err(|e| e.context("source"))?;
        Ok(Sides { to, to_address, from, from_address })
    }

    /// # Safety
    /// As [`Account::copy`]. Without a stream the address tells the device.
    pub(crate) unsafe fn fill(
        &self,
        stream: *mut abi::Stream,
        to: *mut c_void,
        value: u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.stream_for(stream, to) }?;
        self.backend.fault(Operation::Copy, "copy")?;
        let device = self.backend.device(stream.device_index)?;
        let address = device.resolve(to, bytes).map_err(|e| e.context("fill"))?;
        // SAFETY: resolved for `bytes` bytes, which the caller vouches for.
        unsafe { device.fill(stream, address, value, bytes) }
    }

    /// # Safety
    /// As [`DeviceBackend::launch`]; the stream as in [`Inner::stream`]. Without one the first address tells the device.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut abi::Stream,
        kernel: &abi::Kernel,
        grid: abi::Grid,
        args: &[abi::Arg],
    ) -> Result<()> {
        let first = args.iter().find(|arg| arg.kind != abi::ARG_VALUE && arg.bytes > 0);
        let first = first.map_or(std::ptr::null(), |arg| arg.value as usize as *const c_void);
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.stream_for(stream, first) }?;
        self.backend.fault(Operation::Launch, "launch")?;
        // SAFETY: by this function's own contract.
        unsafe { self.backend.device(stream.device_index)?.launch(stream, kernel, grid, args) }?;
        self.page.launched();
        Ok(())
    }

    /// The stream, or for NULL the default one of the device that `address` is known to lie on.
    ///
    /// # Safety
    /// As [`Inner::stream`].
    unsafe fn stream_for(&self, stream: *mut abi::Stream, address: *const c_void) -> Result<&Stream> {
        // SAFETY: by this function's own contract.
        match unsafe { self.backend.stream(stream) }? {
            Some(stream) => Ok(stream),
            None => self.backend.default_stream(self.backend.owner_of(address).0),
        }
    }

    /// The device of a stream, and the stream; NULL is that of the host.
    ///
    /// # Safety
    /// As [`Inner::stream`].
    pub(crate) unsafe fn on_stream(&self, stream: *mut abi::Stream) -> Result<(&dyn DeviceBackend, &Stream)> {
        // SAFETY: by this function's own contract.
        let stream = unsafe { self.stream_for(stream, std::ptr::null()) }?;
        Ok((self.backend.device(stream.device_index)?, stream))
    }

    pub(crate) fn stream_create(&self, device: Device) -> Result<*mut abi::Stream> {
        let device_index = self.backend.index_of(device)?;
        let raw = self.backend.device(device_index)?.stream_create()?;
        let backend = Arc::as_ptr(&self.backend) as usize;
        Ok(Box::into_raw(Box::new(Stream { backend, device_index, raw })).cast())
    }

    /// Default streams, and those of other backends, stay as they are.
    ///
    /// # Safety
    /// As [`Inner::stream`], and nobody uses it any more.
    pub(crate) unsafe fn stream_destroy(&self, handle: *mut abi::Stream) -> Result<()> {
        // SAFETY: by this function's own contract.
        let Some(stream) = unsafe { self.backend.stream(handle) }? else { return Ok(()) };
        if self.backend.is_default_stream(stream) {
            return Ok(());
        }
        self.backend.device(stream.device_index)?.stream_destroy(stream);
        // SAFETY: made by `stream_create` as a Box, since it is ours and no default one, and given up by the caller.
        drop(unsafe { Box::from_raw(handle.cast::<Stream>()) });
        Ok(())
    }

    pub(crate) fn pointer(&self, address: *const c_void) -> Result<(Device, usize, usize)> {
        if address.is_null() {
            return Err(Error::invalid_argument("pointer: the address is NULL"));
        }
        let (index, found) = self.backend.owner_of(address);
        let device = self.backend.device(index)?.describe().device;
        Ok(match found {
            Found::No => (device, 0, 0),
            Found::Block { base, bytes } => (device, base, bytes),
        })
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
        let Block { account, device_index, region } = *block;
        if let Some(memory) = account.memory.get(device_index) {
            memory.release(region, uses, lent);
        }
    }
}

struct Sides<'a> {
    to: &'a dyn DeviceBackend,
    to_address: *mut u8,
    from: &'a dyn DeviceBackend,
    from_address: *mut u8,
}

/// A device's memory, which all accounts share.
struct DeviceMemory {
    backend: Arc<Inner>,
    device_index: usize,
}

impl Resource for DeviceMemory {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        match self.backend.device(self.device_index) {
            Ok(device) => device.memory().allocate(request, stream),
            Err(_) => Err(Refusal::System { errno: libc::ENODEV }),
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        if let Ok(device) = self.backend.device(self.device_index) {
            device.memory().release(region, uses, lent);
        }
    }

    fn trim(&self, bytes: usize) -> usize {
        self.backend.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.backend.device(self.device_index).map_or(0, |device| device.memory().cached_bytes())
    }
}
