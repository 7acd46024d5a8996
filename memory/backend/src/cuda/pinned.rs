//! Host memory that devices copy from and to at full speed.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::answer::Answer;
use super::context::Gpu;
use super::driver::{HOST_ALLOC_PORTABLE, SUCCESS};
use super::event::CudaEvent;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{HostMemory, Refusal, Region, Request, Resource, Uses};

/// The devices that have been started: all of them may have work in flight on pinned memory.
#[derive(Default)]
pub(crate) struct Started(Mutex<Vec<Arc<Gpu>>>);

impl Started {
    pub(crate) fn add(&self, gpu: &Arc<Gpu>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(gpu.clone());
    }

    pub(crate) fn all(&self) -> Vec<Arc<Gpu>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Pages that the driver has pinned, for every context of the process. Slow to get (half a second a GiB), so a pool is to
/// stand over it. Not write-combined: the host reads from it too.
pub(crate) struct PinnedMemory {
    started: Arc<Started>,
}

impl PinnedMemory {
    pub(crate) fn new(started: Arc<Started>) -> Self {
        Self { started }
    }
}

impl Resource for PinnedMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, Refusal> {
        let natural = HostMemory::natural_alignment(request.bytes);
        let slack = if request.alignment > natural { request.alignment } else { 0 };
        let bytes = request.bytes.max(1).checked_add(slack).ok_or(Refusal::TooLarge)?;
        let gpu = self.started.all().into_iter().next();
        let gpu = gpu.ok_or(Refusal::Device(Answer::not_started("cuMemHostAlloc")))?;
        let _entered = gpu.try_enter().map_err(Refusal::Device)?;
        let mut base: *mut c_void = std::ptr::null_mut();
        let code = {
            let _relaxed = gpu.relaxed();
            // SAFETY: a pointer to a local; the context is current.
            unsafe { (gpu.driver.mem_host_alloc)(&mut base, bytes, HOST_ALLOC_PORTABLE) }
        };
        let answer = || Refusal::Device(gpu.driver.answer("cuMemHostAlloc", code));
        let base = NonNull::new(base.cast::<u8>()).filter(|_| code == SUCCESS).ok_or_else(answer)?;
        let before = if slack == 0 { 0 } else { base.align_offset(request.alignment).min(slack) };
        // SAFETY: within the `slack` bytes that were asked for on top.
        let address = unsafe { base.add(before) };
        Ok(Region { address, reachable: base, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _lent: bool) {
        let Some(gpu) = self.started.all().into_iter().next() else { return };
        if let Ok(_entered) = gpu.enter() {
            // SAFETY: `allocate` got it here, and nothing uses it any more.
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

/// Gives what comes back on, once the devices are done with it: nobody waits.
pub(crate) struct Deferred<R> {
    inner: Arc<R>,
    backend: usize,
    reaper: Arc<Reaper>,
    started: Arc<Started>,
}

impl<R> Deferred<R> {
    pub(crate) fn new(inner: R, backend: usize, reaper: Arc<Reaper>, started: Arc<Started>) -> Self {
        Self { inner: Arc::new(inner), backend, reaper, started }
    }
}

impl<R: Resource + 'static> Resource for Deferred<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        self.inner.allocate(request, stream)
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        // SAFETY: `free`'s caller hands over live events of this backend.
        let events = uses.iter().filter_map(|event| unsafe { CudaEvent::of(self.backend, *event) }.ok());
        let pending = |event: &Arc<CudaEvent>| !matches!(event.is_done(), Ok(true));
        let events: Vec<_> = events.filter(pending).collect();
        if events.is_empty() && !lent {
            return self.inner.release(region, &[], false);
        }
        let everything_on = if lent { self.started.all() } else { Vec::new() };
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
