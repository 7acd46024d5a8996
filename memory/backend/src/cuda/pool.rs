//! Allocates device memory in stream order, from a memory pool of the backend.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::Result;

use super::captured::{Captured, FreedBlock};
use super::context::Gpu;
use super::driver::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, LOCATION_DEVICE, MemAccess, MemLocation, MemPool, MemPoolProps,
    POOL_RELEASE_THRESHOLD, POOL_RESERVED_CURRENT, POOL_USED_CURRENT, SUCCESS,
};
use super::event::CudaEvent;
use super::frees::PendingFrees;
use super::kept::{Kept, KeptBlock, block_bytes};
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{AllocError, Region, Request, Resource, Uses};

/// Minimum alignment in bytes of the blocks that the driver allocates.
const NATURAL_ALIGNMENT: usize = 256;

/// A `CUmemoryPool` that only this backend uses, unlike the device's default pool.
///
/// Freeing a block never waits. A block that was used only on the stream that allocated it is kept
/// for reuse, or freed in the order of that stream. A block that was used on other streams is freed
/// after all its uses, and an exported block is freed after all work in flight. In these two cases
/// a separate stream does the waiting, so that streams that still have work are not delayed.
pub(crate) struct DevicePool {
    gpu: Arc<Gpu>,
    pool: Handle,
    pending_frees: Arc<PendingFrees>,
    captured: Captured,
    kept: Kept,
    backend: usize,
    reaper: Arc<Reaper>,
}

/// The minimum size in bytes of a kept block that other streams than its home reuse. Smaller blocks
/// are not worth an event.
const SHARED_BYTES: usize = 256 << 10;
/// The part of the device's memory that may be kept for reuse in blocks.
const KEPT_PART: u64 = 8;

#[derive(Clone, Copy)]
struct Handle(*mut c_void);

// SAFETY: the driver accepts pools on any thread.
unsafe impl Send for Handle {}
// SAFETY: the driver accepts pools on several threads at the same time.
unsafe impl Sync for Handle {}

impl DevicePool {
    /// Creates an empty pool that caches up to `max_cached_bytes` bytes of freed blocks.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        backend: usize,
        reaper: Arc<Reaper>,
        mut max_cached_bytes: u64,
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
        // SAFETY: the pointers point to local variables; the context is current.
        unsafe {
            gpu.driver.check("cuMemPoolCreate", (gpu.driver.mem_pool_create)(&mut pool, &props))?;
            let threshold = (&raw mut max_cached_bytes).cast();
            let code = (gpu.driver.mem_pool_set_attribute)(pool, POOL_RELEASE_THRESHOLD, threshold);
            gpu.driver.check("cuMemPoolSetAttribute", code)?;
        }
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the pointers point to local variables; the context is current.
        let code = unsafe { (gpu.driver.mem_get_info)(&mut free, &mut total) };
        gpu.driver.check("cuMemGetInfo", code)?;
        let kept = Kept::new((total as u64).min(max_cached_bytes) as usize / KEPT_PART as usize);
        let pending_frees = Arc::new(PendingFrees::new(gpu.clone())?);
        drop(_entered);
        let (pool, captured) = (Handle(pool), Captured::default());
        Ok(Self { gpu, pool, pending_frees, captured, kept, backend, reaper })
    }

    /// Lets the device `peer` access the memory of this pool.
    pub(crate) fn share_with(&self, peer: &Gpu) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let access = MemAccess {
            location: MemLocation { r#type: LOCATION_DEVICE, id: peer.ordinal },
            flags: ACCESS_READ_WRITE,
        };
        // SAFETY: the pool is alive, and `access` is one description, as the count states.
        let code = unsafe { (self.gpu.driver.mem_pool_set_access)(self.pool.0, &access, 1) };
        self.gpu.driver.check("cuMemPoolSetAccess", code)
    }

    fn attribute(&self, which: i32) -> u64 {
        let mut value = 0u64;
        let _relaxed = self.gpu.relaxed();
        // SAFETY: the pool is alive, and `value` has the type of the attribute.
        unsafe { (self.gpu.driver.mem_pool_get_attribute)(self.pool.0, which, (&raw mut value).cast()) };
        value
    }

    /// Bytes of the device's memory that are in use outside this pool.
    pub(crate) fn external_bytes(&self) -> Result<u64> {
        let _entered = self.gpu.enter()?;
        let _relaxed = self.gpu.relaxed();
        let (mut free, mut total) = (0usize, 0usize);
        let reserved_before = self.attribute(POOL_RESERVED_CURRENT);
        // SAFETY: the pointers point to local variables; the context is current.
        let code = unsafe { (self.gpu.driver.mem_get_info)(&mut free, &mut total) };
        self.gpu.driver.check("cuMemGetInfo", code)?;
        // Reads the size of the pool before and after the call, and subtracts the larger size. The
        // pool may grow or shrink meanwhile, and its memory must not count as external.
        let reserved = reserved_before.max(self.attribute(POOL_RESERVED_CURRENT));
        Ok((total.saturating_sub(free) as u64).saturating_sub(reserved))
    }

    /// Blocks until all pending frees have run, except those that wait for the end of a graph
    /// capture.
    pub(crate) fn settle(&self) {
        if let Ok(_entered) = self.gpu.enter() {
            self.free_after_capture();
            self.pending_frees.settle();
        }
    }

    /// Frees blocks that were released during a capture that has ended. The context must be
    /// current.
    fn free_after_capture(&self) {
        self.captured.take_ended(&self.gpu).into_iter().for_each(|block| self.free_block(block));
    }

    fn free_block(&self, block: FreedBlock) {
        if self.free_in_stream_order(&block).is_ok() {
            return;
        }
        // If the block cannot be freed in stream order (because the driver is too old, or a capture
        // is open), the reaper waits and then frees it.
        let (gpu, pending_frees) = (self.gpu.clone(), self.pending_frees.clone());
        let FreedBlock { base, bytes, uses: events, .. } = block;
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                // `free_in_stream_order` failed before the driver freed the block.
                pending_frees.free(base, bytes);
            }
        });
        self.reaper.add(Job { events, everything_on: vec![self.gpu.clone()], then });
    }

    /// Frees a block after all its uses, without blocking.
    fn free_in_stream_order(&self, block: &FreedBlock) -> Result<()> {
        let (gpu, home) = (&self.gpu, block.home);
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let other_streams = || block.uses.iter().filter(|event| event.stream() != home);
        if !block.exported && other_streams().next().is_none() {
            if gpu.has_stream(home)
                && let Some(bytes) = block_bytes(block.bytes)
            {
                let after = if bytes < SHARED_BYTES { None } else { gpu.record(home).ok() };
                let evicted = self.kept.add(KeptBlock { base: block.base, home, after }, bytes);
                self.free_kept(evicted);
                return Ok(());
            }
            // SAFETY: the block was allocated from this pool on this stream, used on no other
            // stream, and is freed once.
            let code = unsafe { (gpu.driver.mem_free_async)(block.base, home) };
            return gpu.driver.check("cuMemFreeAsync", code);
        }
        if block.exported {
            self.order_after_all_work()?;
        }
        let home_event = gpu.record(home)?;
        let result = gpu.wait(self.pending_frees.stream(), home_event);
        gpu.return_event(home_event);
        result?;
        other_streams().try_for_each(|event| gpu.wait(self.pending_frees.stream(), event.raw()))?;
        self.pending_frees.add(block.base, block.bytes)
    }

    /// Frees blocks that were kept. The context must be current.
    fn free_kept(&self, blocks: Vec<KeptBlock>) {
        let _relaxed = self.gpu.relaxed();
        for KeptBlock { base, home, after } in blocks {
            after.into_iter().for_each(|event| self.gpu.return_event(event));
            // SAFETY: the block was allocated from this pool, its uses precede later work on
            // `home`, which is a live stream, and it is freed once.
            let code = unsafe { (self.gpu.driver.mem_free_async)(base, home) };
            if code != SUCCESS {
                // A capture is open on `home`, or the device has stopped.
                let (events, gpu) = (Vec::new(), self.gpu.clone());
                let pending_frees = self.pending_frees.clone();
                let then = Box::new(move || {
                    if let Ok(_entered) = gpu.enter() {
                        pending_frees.free(base, 0);
                    }
                });
                self.reaper.add(Job { events, everything_on: vec![self.gpu.clone()], then });
            }
        }
    }

    /// Returns a kept block of `bytes` bytes, usable in the order of `stream`.
    fn reuse(&self, bytes: usize, stream: &Stream) -> Option<u64> {
        // The work of a capture runs later, and the stream of other code may be destroyed.
        if stream.adopted || self.gpu.is_known_to_capture(stream.raw) {
            return None;
        }
        // SAFETY: a kept block's event belongs to this context, and is alive while it is kept.
        let has_passed = |event| unsafe { (self.gpu.driver.event_query)(event) } == SUCCESS;
        let block = self.kept.take(bytes, stream.raw, has_passed)?;
        block.after.into_iter().for_each(|event| self.gpu.return_event(event));
        Some(block.base)
    }

    /// Makes later frees on the separate stream wait for all work in flight, including work of
    /// other libraries.
    fn order_after_all_work(&self) -> Result<()> {
        let event = self.gpu.record_everything()?;
        let result = self.gpu.wait(self.pending_frees.stream(), event);
        self.gpu.return_event(event);
        result
    }
}

/// The bytes of a block in addition to those of the request, for its alignment.
fn slack(request: Request) -> usize {
    if request.alignment > NATURAL_ALIGNMENT { request.alignment } else { 0 }
}

impl Resource for DevicePool {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        let slack = slack(request);
        let bytes = request.bytes.checked_add(slack).and_then(block_bytes).ok_or(AllocError::TooLarge)?;
        let driver = &self.gpu.driver;
        let _entered = self.gpu.try_enter().map_err(AllocError::Device)?;
        self.free_after_capture();
        self.pending_frees.make_room(stream.raw);
        let _relaxed = self.gpu.relaxed();
        let (mut base, mut code) = (self.reuse(bytes, stream).unwrap_or(0), SUCCESS);
        if base == 0 {
            // SAFETY: the pointer points to a local variable; pool and stream belong to this
            // context.
            code = unsafe { (driver.mem_alloc_from_pool_async)(&mut base, bytes, self.pool.0, stream.raw) };
            driver.check_code("cuMemAllocFromPoolAsync", code).map_err(AllocError::Device)?;
        }
        let address = if slack == 0 { base } else { base.next_multiple_of(request.alignment as u64) };
        let pointer = |address: u64| NonNull::new(address as usize as *mut u8);
        match (pointer(address), pointer(base)) {
            (Some(address), Some(reachable)) => Ok(Region { address, reachable, request, home: stream.raw }),
            _ => Err(AllocError::Device(driver.error("cuMemAllocFromPoolAsync", code))),
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        // SAFETY: by the contract of `free`, the events in `uses` are live.
        let uses =
            uses.iter().filter_map(|event| unsafe { CudaEvent::from_handle(self.backend, *event) }.ok());
        let block = FreedBlock {
            base: region.reachable.as_ptr() as u64,
            bytes: region.request.bytes + slack(region.request),
            home: region.home,
            uses: uses.collect(),
            exported,
        };
        if let Ok(_entered) = self.gpu.enter() {
            self.free_after_capture();
            self.pending_frees.try_free_passed();
            if self.gpu.is_known_to_capture(block.home) {
                return self.captured.add(block);
            }
        }
        self.free_block(block);
    }

    fn trim(&self, _bytes: usize) -> usize {
        let (reserved, used) = (self.attribute(POOL_RESERVED_CURRENT), self.attribute(POOL_USED_CURRENT));
        self.reaper.flush();
        if let Ok(_entered) = self.gpu.enter() {
            self.free_after_capture();
            self.free_kept(self.kept.take_all());
            // SAFETY: the context is current. The wait completes all frees that were enqueued in
            // the order of a stream.
            unsafe { (self.gpu.driver.ctx_synchronize)() };
            self.pending_frees.settle();
            let _relaxed = self.gpu.relaxed();
            // SAFETY: the context is current, and the pool is alive.
            unsafe { (self.gpu.driver.mem_pool_trim_to)(self.pool.0, 0) };
        }
        let decrease = |before: u64, which| before.saturating_sub(self.attribute(which)) as usize;
        decrease(reserved, POOL_RESERVED_CURRENT).max(decrease(used, POOL_USED_CURRENT))
    }

    fn cached_bytes(&self) -> usize {
        let unused = self.attribute(POOL_RESERVED_CURRENT).saturating_sub(self.attribute(POOL_USED_CURRENT));
        // Adds the bytes of blocks that the driver counts as in use.
        unused as usize + self.pending_frees.pending_bytes() + self.captured.bytes() + self.kept.bytes()
    }
}

impl Drop for DevicePool {
    /// Waits until all frees have run, and destroys the pool. With driver 580, a pool that is
    /// destroyed while frees are enqueued in the order of a stream can corrupt the driver's state:
    /// calls on other threads then wait forever for a lock of the driver, or crash. See
    /// docs/decisions/0007.
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return };
        let _relaxed = self.gpu.relaxed();
        // Blocks whose stream is still under capture leak, because they cannot be freed.
        self.free_after_capture();
        self.pending_frees.settle();
        self.free_kept(self.kept.take_all());
        // SAFETY: the context is current.
        if unsafe { (self.gpu.driver.ctx_synchronize)() } == SUCCESS {
            return destroy(&self.gpu, self.pool);
        }
        // A capture is open in the context, so the reaper waits for its end.
        let (gpu, pool) = (self.gpu.clone(), self.pool);
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                destroy(&gpu, pool);
            }
        });
        self.reaper.add(Job { events: Vec::new(), everything_on: vec![self.gpu.clone()], then });
    }
}

/// Destroys a pool. The context must be current, and all frees in the order of a stream must have
/// run.
fn destroy(gpu: &Gpu, pool: Handle) {
    // SAFETY: the caller is the only owner of the pool. `PendingFrees` frees the remaining blocks,
    // and the driver keeps the pool until the last block has been freed.
    unsafe { (gpu.driver.mem_pool_destroy)(pool.0) };
}
