//! Copies between a device and ordinary host memory at the speed of the link.
//!
//! The driver's own copy reaches a sixth of that: it uses one small pinned buffer on the caller's
//! thread. Here several threads copy to or from a ring of pinned chunks, while the device copies
//! other chunks. With sixteen cores and an H200 (link 55.5 GB/s) this moves 51 GB/s in either
//! direction. Measurements behind the design:
//!
//! - Chunks of 2 MiB: 1 MiB gives 47 GB/s and 512 KiB 43, because the link idles between copies; 8
//!   MiB gains little.
//! - Ordinary `memcpy`: non-temporal stores, prefetching and huge pages gain nothing once chunks
//!   are large.
//! - All copies run on the caller's stream: several streams are no faster, and one stream keeps the
//!   order.
//! - Waiting for events by spinning, the driver's default: sleeping threads cost 2 GB/s to the
//!   device, and 5 to fresh host memory.
//! - Small last parts on the way to the host: 1 GB/s of a copy of 256 MiB, 3 of one of 64 MiB.
//! - Copying a mapped file instead of registering it: registering gives 28 GB/s.
//!
//! Small copies stay on the caller's thread, packed into a chunk.

mod chunk;
mod copy_plan;
mod job;
mod ring;
#[cfg(test)]
mod tests;
mod workers;

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::Result;

use self::copy_plan::{CopyPlan, Piece};
use self::job::{Direction, Job};
use self::ring::Ring;
use self::workers::Workers;
use super::driver::{Context, DevicePtr, Driver, POINTER_RANGE_START, RawStream, SUCCESS};

const CHUNK_BYTES: usize = 2 << 20;
/// Three for each of twelve threads, and a quarter of all for concurrent copies.
const MAX_CHUNKS: usize = 48;
/// Size of chunks for small copies, so that many of these can be in flight.
const SMALL_CHUNK_BYTES: usize = 64 << 10;
const MAX_SMALL_CHUNKS: usize = 64;
/// Copies up to this size stay on the caller's thread, which is done before other threads wake up.
const MAX_SINGLE_THREAD_BYTES: usize = 512 << 10;
/// Minimum size of a part for another thread.
const MIN_PART_BYTES: usize = 256 << 10;

/// Size of the last parts on the way to the host: they are written out while nothing else arrives,
/// so they are spread over more threads.
const LAST_PART_BYTES: usize = 512 << 10;

/// The staging of one device. Chunks and threads are created when first needed, and kept.
pub(crate) struct Staging {
    cuda: Cuda,
    small: Ring,
    workers: Workers,
    large: Arc<Ring>,
}

/// A device's driver and context.
#[derive(Clone, Copy)]
struct Cuda {
    driver: Driver,
    context: Context,
}

impl Cuda {
    /// Whether two addresses, the second of them higher, belong to one allocation. `false` if the
    /// driver does not know.
    fn are_in_one_allocation(&self, lower: DevicePtr, upper: DevicePtr) -> bool {
        let mut start: DevicePtr = 0;
        let mut which = [POINTER_RANGE_START];
        let mut values = [(&raw mut start).cast::<c_void>()];
        // SAFETY: the lists have one entry each, and the local has the attribute's type. The driver
        // treats the address as a number.
        let code = unsafe {
            (self.driver.pointer_get_attributes)(1, which.as_mut_ptr(), values.as_mut_ptr(), upper)
        };
        code == SUCCESS && start != 0 && start <= lower
    }
}

// SAFETY: the driver accepts its handles on any thread.
unsafe impl Send for Cuda {}
// SAFETY: the driver accepts its handles on several threads at the same time.
unsafe impl Sync for Cuda {}

impl Staging {
    /// Allocates and starts nothing yet. `context` must outlive the result.
    pub(crate) fn new(driver: Driver, context: Context) -> Self {
        let cuda = Cuda { driver, context };
        let large = Arc::new(Ring::new(cuda, CHUNK_BYTES, 4, MAX_CHUNKS));
        Self {
            cuda,
            small: Ring::new(cuda, SMALL_CHUNK_BYTES, 16, MAX_SMALL_CHUNKS),
            workers: Workers::new(cuda, large.clone()),
            large,
        }
    }

    /// Copies each `(to, from, bytes)`, in any order. When it returns, all sources have been read
    /// and may change, and the copies are enqueued, so that later work on `stream` comes after
    /// them.
    ///
    /// # Errors
    /// The driver's error, with the function's name. Some pieces may have been copied.
    ///
    /// # Safety
    /// The context is current on this thread, and `stream` belongs to it and is not under capture.
    /// Sources are readable host memory during the call; targets are memory of the device that
    /// nothing else uses until the copies have run.
    pub(crate) unsafe fn host_to_device(
        &self,
        stream: RawStream,
        pieces: &[(DevicePtr, *const u8, usize)],
    ) -> Result<()> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|&(device, from, bytes)| Piece { device, host: from.cast_mut(), bytes })
            .collect();
        self.run(Direction::ToDevice, stream, &pieces)
    }

    /// Copies each `(to, from, bytes)` after the work enqueued on `stream`, in any order. Returns
    /// when all bytes have arrived.
    ///
    /// # Errors
    /// Those of [`Staging::host_to_device`].
    ///
    /// # Safety
    /// The context is current on this thread, and `stream` belongs to it and is not under capture.
    /// Sources are memory of the device; targets are host memory that only this call uses until it
    /// returns.
    pub(crate) unsafe fn device_to_host(
        &self,
        stream: RawStream,
        pieces: &[(*mut u8, DevicePtr, usize)],
    ) -> Result<()> {
        let pieces: Vec<_> =
            pieces.iter().map(|&(host, device, bytes)| Piece { device, host, bytes }).collect();
        self.run(Direction::ToHost, stream, &pieces)
    }

    fn run(&self, direction: Direction, stream: RawStream, pieces: &[Piece]) -> Result<()> {
        let are_adjacent = |lower, upper| self.cuda.are_in_one_allocation(lower, upper);
        let total = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.bytes));
        if total <= MAX_SINGLE_THREAD_BYTES {
            let ring = if total <= SMALL_CHUNK_BYTES { &self.small } else { &self.large };
            let job =
                Job::new(direction, stream, CopyPlan::new(pieces, |_| ring.chunk_bytes(), are_adjacent));
            return job.run_alone(ring);
        }
        let part_bytes = (total / (2 * self.workers.width())).next_multiple_of(64 << 10);
        let part_bytes = part_bytes.clamp(MIN_PART_BYTES, CHUNK_BYTES);
        let last_bytes = self.workers.width() * LAST_PART_BYTES;
        let max_bytes = |offset: usize| match direction {
            Direction::ToHost if offset.saturating_add(last_bytes) >= total => {
                part_bytes.min(LAST_PART_BYTES)
            }
            _ => part_bytes,
        };
        let plan = CopyPlan::new(pieces, max_bytes, are_adjacent);
        let job = Arc::new(Job::new(direction, stream, plan));
        self.workers.with(&job, || job.lead(&self.large, &self.workers))
    }
}
