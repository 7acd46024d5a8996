//! Allocates device memory that other processes can open through CUDA IPC.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Gpu;
use super::driver::SUCCESS;
use super::event::CudaEvent;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{AllocError, Region, Request, Resource, Uses};

/// Sizes are rounded up to a multiple of this number of bytes, so that the driver creates a
/// separate allocation for each block. The driver would place smaller blocks in a common
/// allocation, and a process that opens one of these blocks could access the whole allocation.
const SEPARATE_BYTES: usize = 2 << 20;

/// Allocates with `cuMemAlloc`, which takes 50 times as long as an allocation from the pool. The
/// reaper's thread frees the memory with `cuMemFree`, which waits for the whole device, so that no
/// caller waits.
pub(crate) struct ShareableMemory {
    gpu: Arc<Gpu>,
    backend: usize,
    reaper: Arc<Reaper>,
}

impl ShareableMemory {
    pub(crate) fn new(gpu: Arc<Gpu>, backend: usize, reaper: Arc<Reaper>) -> Self {
        Self { gpu, backend, reaper }
    }
}

impl Resource for ShareableMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let bytes =
            request.bytes.max(1).checked_next_multiple_of(SEPARATE_BYTES).ok_or(AllocError::TooLarge)?;
        let _entered = self.gpu.try_enter().map_err(AllocError::Device)?;
        let _relaxed = self.gpu.relaxed();
        let mut base = 0;
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (self.gpu.driver.mem_alloc)(&mut base, bytes) };
        let address = NonNull::new(base as usize as *mut u8).filter(|_| code == SUCCESS);
        // The memory is usable at once on all streams, and aligned to at least `MAX_ALIGNMENT`.
        let error = || AllocError::Device(self.gpu.driver.error("cuMemAlloc", code));
        let address = address.ok_or_else(error)?;
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, uses: Uses<'_>, _exported: bool) {
        // SAFETY: by the contract of `free`, the events in `uses` are live.
        let events =
            uses.iter().filter_map(|event| unsafe { CudaEvent::from_handle(self.backend, *event) }.ok());
        let (gpu, base) = (self.gpu.clone(), region.reachable.as_ptr() as u64);
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                let _relaxed = gpu.relaxed();
                // SAFETY: `allocate` allocated `base`, this is its only free, and the reaper runs
                // this job when nothing on the device uses the memory.
                unsafe { (gpu.driver.mem_free)(base) };
            }
        });
        // `cuMemFree` waits for the device, and fails while a stream is under capture. So the
        // reaper runs the job once all work has completed and no capture is open.
        self.reaper.add(Job { events: events.collect(), everything_on: vec![self.gpu.clone()], then });
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}
