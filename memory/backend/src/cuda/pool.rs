//! Device memory, in stream order, from a pool of our own.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::Result;

use super::captured::{Captured, Returned};
use super::context::Gpu;
use super::driver::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, LOCATION_DEVICE, MemAccess, MemLocation, MemPool, MemPoolProps,
    POOL_RELEASE_THRESHOLD, POOL_RESERVED_CURRENT, POOL_USED_CURRENT,
};
use super::event::CudaEvent;
use super::frees::Frees;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{Refusal, Region, Request, Resource, Uses};

/// What the driver aligns blocks to at least.
const NATURAL_ALIGNMENT: usize = 256;

/// A `CUmemoryPool`. Others in the process use the default one; this one is ours alone.
///
/// Freeing never waits. A block that was only ever used on the stream that it was allocated on goes back in the order of
/// that stream. One that was used elsewhere too goes back once every use has passed, and one that strangers have seen once
/// all has that was in flight: a stream kept for this waits for it, so that no stream that still has work is held up.
pub(crate) struct DevicePool {
    gpu: Arc<Gpu>,
    pool: Handle,
    frees: Arc<Frees>,
    captured: Captured,
    backend: usize,
    reaper: Arc<Reaper>,
}

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: the driver takes pools on every thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl DevicePool {
    /// An empty pool that keeps up to `keep_bytes` of what was freed.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        backend: usize,
        reaper: Arc<Reaper>,
        mut keep_bytes: u64,
    ) -> Result<Self> {
        let _entered = gpu.enter()?;
        let props = MemPoolProps {
            alloc_type: ALLOCATION_PINNED,
            handle_types: 0,
            location: MemLocation { r#type: LOCATION_DEVICE, id: gpu.ordinal },
            win32_security_attributes: std::ptr::null_mut(),
            max_size: 0,
            reserved: [0; 56],
        };
        let mut pool: MemPool = std::ptr::null_mut();
        // SAFETY: pointers to locals; the context is current.
        unsafe {
            gpu.driver.check("cuMemPoolCreate", (gpu.driver.mem_pool_create)(&mut pool, &props))?;
            let threshold = (&raw mut keep_bytes).cast();
            let code = (gpu.driver.mem_pool_set_attribute)(pool, POOL_RELEASE_THRESHOLD, threshold);
            gpu.driver.check("cuMemPoolSetAttribute", code)?;
        }
        let frees = Arc::new(Frees::new(gpu.clone())?);
        drop(_entered);
        Ok(Self { gpu, pool: Handle(pool), frees, captured: Captured::default(), backend, reaper })
    }

    /// Lets device `peer` read and write what is allocated here.
    pub(crate) fn share_with(&self, peer: &Gpu) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let access = MemAccess {
            location: MemLocation { r#type: LOCATION_DEVICE, id: peer.ordinal },
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: a live pool and a local.
        let code = unsafe { (self.gpu.driver.mem_pool_set_access)(self.pool.0, &access, 1) };
        self.gpu.driver.check("cuMemPoolSetAccess", code)
    }

    fn attribute(&self, which: i32) -> u64 {
        let mut value = 0u64;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: a live pool, and a local of the attribute's type.
        unsafe { (self.gpu.driver.mem_pool_get_attribute)(self.pool.0, which, (&raw mut value).cast()) };
        value
    }

    /// Bytes of the device that are taken and not this pool's.
    pub(crate) fn foreign_bytes(&self) -> Result<u64> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        let (mut free, mut total) = (0usize, 0usize);
        let before = self.attribute(POOL_RESERVED_CURRENT);
        // SAFETY: pointers to locals; the context is current.
        let code = unsafe { (self.gpu.driver.mem_get_info)(&mut free, &mut total) };
        self.gpu.driver.check("cuMemGetInfo", code)?;
        // Where it grows or shrinks meanwhile it is the larger: what the pool gains or loses is nobody else's.
        let reserved = before.max(self.attribute(POOL_RESERVED_CURRENT));
        Ok((total.saturating_sub(free) as u64).saturating_sub(reserved))
    }

    /// Blocks until what was released has gone back, but for what waits for the end of a graph capture.
    pub(crate) fn settle(&self) {
        if let Ok(_entered) = self.gpu.enter() {
            self.give_back_ended();
            self.frees.settle();
        }
    }

    /// What came back during a capture that is over. The context is current.
    fn give_back_ended(&self) {
        self.captured.take_ended(&self.gpu).into_iter().for_each(|block| self.give_back(block));
    }

    fn give_back(&self, block: Returned) {
        if self.free(&block).is_ok() {
            return;
        }
        // Where the stream order cannot be had (an old driver, a capture that is open), a thread waits for it.
        let (gpu, frees) = (self.gpu.clone(), self.frees.clone());
        let Returned { base, bytes, uses: events, .. } = block;
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                // What was tried before did not get so far, or the driver refused.
                frees.free(base, bytes);
            }
        });
        self.reaper.add(Job { events, everything_on: vec![self.gpu.clone()], then });
    }

    /// Frees a block after all that must come first.
    fn free(&self, block: &Returned) -> Result<()> {
        let (gpu, home) = (&self.gpu, block.home);
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let elsewhere = || block.uses.iter().filter(|event| event.stream() != home);
        if !block.lent && elsewhere().next().is_none() {
            // SAFETY: allocated from this pool on that stream, used nowhere else, and freed once.
            let code = unsafe { (gpu.driver.mem_free_async)(block.base, home) };
            return gpu.driver.check("cuMemFreeAsync", code);
        }
        if block.lent {
            self.wait_for_everything()?;
        }
        let before = gpu.record(home)?;
        let waited = gpu.wait(self.frees.stream(), before);
        gpu.give_event(before);
        waited?;
        elsewhere().try_for_each(|event| gpu.wait(self.frees.stream(), event.raw()))?;
        self.frees.add(block.base, block.bytes)
    }

    /// What follows on the freeing stream comes after all that is in flight, strangers' work included.
    fn wait_for_everything(&self) -> Result<()> {
        let event = self.gpu.record_everything()?;
        let waited = self.gpu.wait(self.frees.stream(), event);
        self.gpu.give_event(event);
        waited
    }
}

impl Resource for DevicePool {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        let slack = if request.alignment > NATURAL_ALIGNMENT { request.alignment } else { 0 };
        let bytes = request.bytes.max(1).checked_add(slack).ok_or(Refusal::TooLarge)?;
        let driver = &self.gpu.driver;
        let _entered = self.gpu.try_enter().map_err(Refusal::Device)?;
        self.give_back_ended();
        self.frees.make_room(stream.raw);
        let mut base = 0u64;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: a pointer to a local; pool and stream are of this context.
        let code = unsafe { (driver.mem_alloc_from_pool_async)(&mut base, bytes, self.pool.0, stream.raw) };
        driver.accept("cuMemAllocFromPoolAsync", code).map_err(Refusal::Device)?;
        let address = if slack == 0 { base } else { base.next_multiple_of(request.alignment as u64) };
        let pointer = |address: u64| NonNull::new(address as usize as *mut u8);
        match (pointer(address), pointer(base)) {
            (Some(address), Some(reachable)) => Ok(Region { address, reachable, request, home: stream.raw }),
            _ => Err(Refusal::Device(driver.answer("cuMemAllocFromPoolAsync", code))),
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        // SAFETY: `free`'s caller hands over live events of this backend.
        let uses = uses.iter().filter_map(|event| unsafe { CudaEvent::of(self.backend, *event) }.ok());
        let block = Returned {
            base: region.reachable.as_ptr() as u64,
            bytes: region.request.bytes,
            home: region.home,
            uses: uses.collect(),
            lent,
        };
        if let Ok(_entered) = self.gpu.enter() {
            self.give_back_ended();
            self.frees.look();
            if self.gpu.is_captured(block.home) {
                return self.captured.add(block);
            }
        }
        self.give_back(block);
    }

    fn trim(&self, _bytes: usize) -> usize {
        let before = (self.attribute(POOL_RESERVED_CURRENT), self.attribute(POOL_USED_CURRENT));
        self.reaper.flush();
        if let Ok(_entered) = self.gpu.enter() {
            self.give_back_ended();
            // SAFETY: the context is current. What was freed behind work that is in flight is free after it.
            unsafe { (self.gpu.driver.ctx_synchronize)() };
            self.frees.settle();
            let _relaxed = self.gpu.relaxed();
            // SAFETY: as above.
            unsafe { (self.gpu.driver.mem_pool_trim_to)(self.pool.0, 0) };
        }
        let gained = |before: u64, which| before.saturating_sub(self.attribute(which)) as usize;
        gained(before.0, POOL_RESERVED_CURRENT).max(gained(before.1, POOL_USED_CURRENT))
    }

    fn cached_bytes(&self) -> usize {
        let unused = self.attribute(POOL_RESERVED_CURRENT).saturating_sub(self.attribute(POOL_USED_CURRENT));
        // To the driver these are in use.
        unused as usize + self.frees.pending_bytes() + self.captured.bytes()
    }
}

impl Drop for DevicePool {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // What is still under capture then is lost: there is no moment at which it could go.
            self.give_back_ended();
            // SAFETY: nobody else has the pool, which goes when its last block is free: see `Frees`.
            unsafe { (self.gpu.driver.mem_pool_destroy)(self.pool.0) };
        }
    }
}
