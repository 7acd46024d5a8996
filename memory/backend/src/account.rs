//! One holder of memory: what the functions that cross the boundary do, in Rust.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::backend::Inner;
use crate::cuda::{CudaEvent, Job};
use crate::device::{DeviceBackend, Stream, Transfer};
use crate::fault::Operation;
use crate::ledger::{AccountUse, Page};
use crate::resource::{Counted, MAX_ALIGNMENT, MIN_ALIGNMENT, Refusal, Region, Request, Resource, Uses};
use crate::vtable::{self, Call};

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
        let memory = self.backend.device(index)?;
        if memory.stream_is_capturing(stream)? {
            return Err(Error::device(format!(
                "alloc on {device}: the stream is under graph capture, and the block would belong to the graph; end the \
                 capture first"
            )));
        }
        let request = Request { bytes, alignment: alignment.max(MIN_ALIGNMENT) };
        self.block(index, request, stream)
    }

    /// Host memory that the devices of CUDA reach at full speed, once one has been started.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<abi::Allocation> {
        let index = self.backend.pinned_index();
        let request = Request { bytes, alignment: MIN_ALIGNMENT };
        self.block(index, request, self.backend.default_stream(index)?)
    }

    fn block(&self, index: usize, request: Request, stream: &Stream) -> Result<abi::Allocation> {
        let region = self.region(index, request, stream)?;
        let address = region.address.as_ptr().cast();
        let block = Box::new(Block { account: self.shared(), device_index: index, region });
        Ok(abi::Allocation { address, bytes: request.bytes, block: Box::into_raw(block).cast() })
    }

    /// The memory itself; where there is none, once more without what the pools keep.
    fn region(&self, index: usize, request: Request, stream: &Stream) -> Result<Region> {
        self.backend.extend(&self.page, index);
        let memory = Counted::new(self.backend.device(index)?.memory(), &*self.page, index);
        let first = memory.allocate(request, stream);
        let last = match first {
            Err(Refusal::OverLimit { left_bytes, .. }) => {
                match self.backend.trim(request.bytes.saturating_sub(left_bytes)) {
                    0 => first,
                    _ => memory.allocate(request, stream),
                }
            }
            Err(Refusal::System { .. } | Refusal::Device { .. }) if self.backend.trim(usize::MAX) > 0 => {
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
        let mut sides = Vec::with_capacity(copies.len());
        for (i, copy) in copies.iter().enumerate() {
            sides.push(self.sides(copy, stream).map_err(|e| e.context(format_args!("copy {i}")))?);
        }
        let mut done = 0;
        while let Some(first) = sides.get(done) {
            let same = sides.iter().skip(done).take_while(|next| next.engine == first.engine).count();
            let engine = self.backend.device(first.engine)?;
            let own = stream
                .filter(|stream| stream.device_index == first.engine || !self.backend.is_cuda(first.engine));
            let on = match own {
                Some(stream) => stream,
                None => self.backend.default_stream(first.engine)?,
            };
            let batch = sides.get(done..done + same).unwrap_or(&[]);
            let transfers: Vec<Transfer> = batch.iter().map(|sides| sides.transfer()).collect();
            // SAFETY: all were resolved for their bytes; that they are what the caller says is its own word.
            unsafe { engine.copy(on, &transfers) }?;
            if own.is_none() && stream.is_some() {
                // On a stream whose work is done when its call returns, another device's is so, too.
                engine.stream_synchronize(on)?;
            }
            for sides in batch {
                self.page.copied(sides.from_host, sides.to_host, sides.bytes);
            }
            done += same;
        }
        Ok(())
    }

    fn sides(&self, copy: &abi::Copy, stream: Option<&Stream>) -> Result<Sides> {
        let to_index = self.backend.index_of(copy.to_device)?;
        let from_index = self.backend.index_of(copy.from_device)?;
        let (to, from) = (self.backend.device(to_index)?, self.backend.device(from_index)?);
        let to_address = to.resolve(copy.to, copy.bytes).map_err(|e| e.context("target"))?;
        let from_address = from.resolve(copy.from, copy.bytes).map_err(|e| e.context("source"))?;
        let (to_host, from_host) = (to.describe().host_accessible, from.describe().host_accessible);
        let (to_cuda, from_cuda) = (self.backend.is_cuda(to_index), self.backend.is_cuda(from_index));
        let engine = match stream.map(|stream| stream.device_index) {
            Some(index) if (to_cuda || from_cuda) && self.backend.is_cuda(index) => index,
            _ if to_cuda => to_index,
            _ if from_cuda => from_index,
            _ if to_host => from_index,
            _ => to_index,
        };
        let bytes = copy.bytes;
        Ok(Sides { engine, to_address, from_address, bytes, to_host, from_host, to_cuda, from_cuda })
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
            None => self.backend.default_stream(self.backend.owner_of(address).index),
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
        Ok(Box::into_raw(Box::new(Stream::new(backend, device_index, raw))).cast())
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

    /// What follows on the stream comes after the event. A host device's stream has nothing that could follow later, so that
    /// this thread waits.
    ///
    /// # Safety
    /// As [`Inner::stream`]; the event is live.
    pub(crate) unsafe fn stream_wait(&self, stream: *mut abi::Stream, event: *mut abi::Event) -> Result<()> {
        // SAFETY: by this function's own contract.
        let (device, stream) = unsafe { self.on_stream(stream) }?;
        if self.backend.is_cuda(stream.device_index) {
            return device.stream_wait(stream, event);
        }
        // SAFETY: by this function's own contract.
        unsafe { self.event(event) }?.map_or(Ok(()), |event| event.synchronize())
    }

    /// The same for a stranger's event.
    ///
    /// # Safety
    /// As [`Account::stream_wait`]; `sync_event` points at an event's handle.
    pub(crate) unsafe fn stream_wait_raw(
        &self,
        stream: *mut abi::Stream,
        sync_event: *mut c_void,
    ) -> Result<()> {
        // SAFETY: by this function's own contract.
        let (device, stream) = unsafe { self.on_stream(stream) }?;
        match self.backend.known_cuda() {
            Some(cuda) if stream.device_index == self.backend.pinned_index() && stream.device_index > 0 => {
                // SAFETY: by this function's own contract.
                unsafe { cuda.synchronize_raw(sync_event) }
            }
            _ => device.stream_wait_raw(stream, sync_event),
        }
    }

    /// An event of ours; `None` is the moment that has passed.
    ///
    /// # Safety
    /// Null, or a live event.
    pub(crate) unsafe fn event(&self, event: *mut abi::Event) -> Result<Option<Arc<CudaEvent>>> {
        if event.is_null() {
            return Ok(None);
        }
        let cuda = self
            .backend
            .known_cuda()
            .ok_or_else(|| Error::invalid_argument(format!("event {event:p} was not made by this memory")))?;
        // SAFETY: by this function's own contract.
        unsafe { cuda.event(event) }.map(Some)
    }

    /// # Safety
    /// As [`Account::event`], and nobody uses it any more.
    pub(crate) unsafe fn event_destroy(&self, event: *mut abi::Event) -> Result<()> {
        // SAFETY: by this function's own contract.
        if let Some(known) = unsafe { self.event(event) }? {
            // SAFETY: the count that the handle stood for, and which its holder gives up.
            unsafe { known.give_up() };
        }
        Ok(())
    }

    /// Makes the call once all events have passed.
    ///
    /// # Safety
    /// The events are live.
    pub(crate) unsafe fn call_after(&self, events: &[*mut abi::Event], call: Call) -> Result<()> {
        let mut pending = Vec::new();
        for event in events {
            // SAFETY: by this function's own contract.
            let event = unsafe { self.event(*event) }?;
            // One that cannot be asked is left to the reaper, which knows what to do then.
            pending.extend(event.filter(|event| !matches!(event.is_done(), Ok(true))));
        }
        match self.backend.known_cuda().filter(|_| !pending.is_empty()) {
            None => call.run(),
            Some(cuda) => {
                let then = Box::new(move || call.run());
                cuda.reaper().add(Job { events: pending, everything_on: Vec::new(), then });
            }
        }
        Ok(())
    }

    pub(crate) fn pointer(&self, address: *const c_void) -> Result<(Device, usize, usize)> {
        if address.is_null() {
            return Err(Error::invalid_argument("pointer: the address is NULL"));
        }
        let place = self.backend.owner_of(address);
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
        let Block { account, device_index, region } = *block;
        if let Ok(device) = account.backend.device(device_index) {
            Counted::new(device.memory(), &*account.page, device_index).release(region, uses, lent);
        }
    }
}

/// A copy's two ends, and the device that does it.
struct Sides {
    engine: usize,
    to_address: *mut u8,
    from_address: *mut u8,
    bytes: usize,
    to_host: bool,
    from_host: bool,
    to_cuda: bool,
    from_cuda: bool,
}

impl Sides {
    fn transfer(&self) -> Transfer {
        Transfer {
            to: self.to_address,
            from: self.from_address,
            bytes: self.bytes,
            to_cuda: self.to_cuda,
            from_cuda: self.from_cuda,
        }
    }
}
