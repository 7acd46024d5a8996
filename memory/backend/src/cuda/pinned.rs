//! Allocates pinned host memory, which devices access at full speed.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::Gpu;
use super::driver::{HOST_ALLOC_PORTABLE, SUCCESS};
use super::driver_error::DriverError;
use super::event::CudaEvent;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{AllocError, HostMemory, Region, Request, Resource, Uses};

/// The devices that have been started. Each device may have work in flight on pinned memory.
#[derive(Default)]
pub(crate) struct StartedGpus(Mutex<Vec<Arc<Gpu>>>);

impl StartedGpus {
    pub(crate) fn add(&self, gpu: &Arc<Gpu>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(gpu.clone());
    }

    pub(crate) fn all(&self) -> Vec<Arc<Gpu>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Allocates pages that the driver pins for all contexts of the process. Pinning is slow (half a
/// second per GiB), so a pool caches the memory. The memory is not write-combined, because the host
/// also reads it.
pub(crate) struct PinnedMemory {
    started: Arc<StartedGpus>,
}

impl PinnedMemory {
    pub(crate) fn new(started: Arc<StartedGpus>) -> Self {
        Self { started }
    }
}

impl Resource for PinnedMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let natural = HostMemory::natural_alignment(request.bytes);
        let slack = if request.alignment > natural { request.alignment } else { 0 };
        let bytes = request.bytes.max(1).checked_add(slack).ok_or(AllocError::TooLarge)?;
        let gpu = self.started.all().into_iter().next();
        let gpu = gpu.ok_or(AllocError::Device(DriverError::not_initialized("cuMemHostAlloc")))?;
        let _entered = gpu.try_enter().map_err(AllocError::Device)?;
        let mut base: *mut c_void = std::ptr::null_mut();
        let code = {
            let _relaxed = gpu.relaxed();
            // SAFETY: the pointer points to a local variable; the context is current.
            unsafe { (gpu.driver.mem_host_alloc)(&mut base, bytes, HOST_ALLOC_PORTABLE) }
        };
        let error = || AllocError::Device(gpu.driver.error("cuMemHostAlloc", code));
        let base = NonNull::new(base.cast::<u8>()).filter(|_| code == SUCCESS).ok_or_else(error)?;
        let offset = if slack == 0 { 0 } else { base.align_offset(request.alignment).min(slack) };
        // SAFETY: `offset` is at most `slack`, and the allocation has that many extra bytes.
        let address = unsafe { base.add(offset) };
        Ok(Region { address, reachable: base, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _exported: bool) {
        let Some(gpu) = self.started.all().into_iter().next() else { return };
        if let Ok(_entered) = gpu.enter() {
            // SAFETY: `cuMemHostAlloc` returned this address to `allocate`, and nothing uses the
            // memory any more.
            unsafe { (gpu.driver.mem_free_host)(region.reachable.as_ptr().cast()) };
        }
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

/// Releases memory once the devices are done with it, without blocking the caller.
pub(crate) struct Deferred<R> {
    inner: Arc<R>,
    backend: usize,
    reaper: Arc<Reaper>,
    started: Arc<StartedGpus>,
}

impl<R> Deferred<R> {
    pub(crate) fn new(inner: R, backend: usize, reaper: Arc<Reaper>, started: Arc<StartedGpus>) -> Self {
        Self { inner: Arc::new(inner), backend, reaper, started }
    }
}

impl<R: Resource + 'static> Resource for Deferred<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        self.inner.allocate(request, stream)
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        // SAFETY: by the contract of `free`, the events in `uses` are live.
        let events =
            uses.iter().filter_map(|event| unsafe { CudaEvent::from_handle(self.backend, *event) }.ok());
        let is_pending = |event: &Arc<CudaEvent>| !matches!(event.is_done(), Ok(true));
        let events: Vec<_> = events.filter(is_pending).collect();
        if events.is_empty() && !exported {
            return self.inner.release(region, &[], false);
        }
        let everything_on = if exported { self.started.all() } else { Vec::new() };
        let inner = self.inner.clone();
        let then = Box::new(move || {
            let region = region;
            inner.release(region, &[], false);
        });
        self.reaper.add(Job { events, everything_on, then });
    }

    fn trim(&self, bytes: usize) -> usize {
        self.reaper.flush();
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
