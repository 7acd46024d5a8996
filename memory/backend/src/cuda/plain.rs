//! Device memory of no pool, which other processes can be given.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Gpu;
use super::driver::SUCCESS;
use super::event::CudaEvent;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{Refusal, Region, Request, Resource, Uses};

/// The driver cuts smaller blocks out of larger ones, and shares the whole of these with whoever opens a part: what is a
/// multiple of this is alone.
const ALONE_BYTES: usize = 2 << 20;

/// `cuMemAlloc` and `cuMemFree`. Getting it costs 50 times what the pool's memory costs, and the driver waits for the whole
/// device when it goes, so that a thread does that which nobody waits for.
pub(crate) struct PlainMemory {
    gpu: Arc<Gpu>,
    backend: usize,
    reaper: Arc<Reaper>,
}

impl PlainMemory {
    pub(crate) fn new(gpu: Arc<Gpu>, backend: usize, reaper: Arc<Reaper>) -> Self {
        Self { gpu, backend, reaper }
    }
}

impl Resource for PlainMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, Refusal> {
        let bytes = request.bytes.max(1).checked_next_multiple_of(ALONE_BYTES).ok_or(Refusal::TooLarge)?;
        let _entered = self.gpu.try_enter().map_err(Refusal::Device)?;
        let _relaxed = self.gpu.relaxed();
        let mut base = 0;
        // SAFETY: a pointer to a local; the context is current.
        let code = unsafe { (self.gpu.driver.mem_alloc)(&mut base, bytes) };
        let address = NonNull::new(base as usize as *mut u8).filter(|_| code == SUCCESS);
        // It is there at once, for every stream, and aligned to more than anybody asks of it.
        let answer = || Refusal::Device(self.gpu.driver.answer("cuMemAlloc", code));
        let address = address.ok_or_else(answer)?;
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, uses: Uses<'_>, _lent: bool) {
        // SAFETY: `free`'s caller hands over live events of this backend.
        let events = uses.iter().filter_map(|event| unsafe { CudaEvent::of(self.backend, *event) }.ok());
        let (gpu, base) = (self.gpu.clone(), region.reachable.as_ptr() as u64);
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                let _relaxed = gpu.relaxed();
                // SAFETY: allocated here, freed once, and nothing on the device uses it any more.
                unsafe { (gpu.driver.mem_free)(base) };
            }
        });
        // The driver waits for the device anyway, and refuses while a stream is under capture; the reaper knows to come again.
        self.reaper.add(Job { events: events.collect(), everything_on: vec![self.gpu.clone()], then });
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}
