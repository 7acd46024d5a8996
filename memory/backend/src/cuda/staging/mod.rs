//! Copies between a device and ordinary host memory, at the speed of the link.
//!
//! The driver itself reaches a sixth of it: it copies through one small pinned buffer, on the caller's thread. Here
//! several threads copy to or from a ring of pinned chunks, while the device copies from or to the chunks before. Sixteen
//! cores and an H200 (link 55.5 GB/s) move 51 GB/s either way so. What decides that, as measured there:
//!
//! - Chunks of 2 MiB: at 1 MiB 47 GB/s, at 512 KiB 43, for the link idles between copies; at 8 MiB little is gained.
//! - Plain `memcpy`: non-temporal stores, prefetching and huge pages for the chunks gain nothing once chunks are large.
//! - The caller's own stream takes all copies: many streams are no faster, and order comes for free.
//! - Waiting for events as the driver does by itself, awake: threads that sleep instead cost 2 GB/s to the device, 5 to
//!   fresh memory of the host.
//! - Small last parts on the way to the host: 1 GB/s of a copy of 256 MiB, 3 of one of 64 MiB.
//! - Registering a file's mapping instead of copying it: 28 GB/s.
//!
//! Small copies stay on the caller's thread, packed into a chunk.

mod chunk;
mod cut;
mod job;
mod ring;
#[cfg(test)]
mod tests;
mod workers;

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::Result;

use self::cut::{Cut, Piece};
use self::job::{Direction, Job};
use self::ring::Ring;
use self::workers::Workers;
use super::driver::{Context, DevicePtr, Driver, POINTER_RANGE_START, RawStream, SUCCESS};

const CHUNK_BYTES: usize = 2 << 20;
/// Three for each of twelve threads, and a quarter for whoever copies beside them.
const MOST_CHUNKS: usize = 48;
/// Chunks for what is small, so that many such copies can be in flight.
const SMALL_CHUNK_BYTES: usize = 64 << 10;
const MOST_SMALL_CHUNKS: usize = 64;
/// Up to here the caller's thread is done sooner than others are awake.
const ALONE_BYTES: usize = 512 << 10;
/// The least that is worth being handed to another thread.
const LEAST_PART_BYTES: usize = 256 << 10;

/// What arrives last is written out while nothing else arrives, so it is shared out in smaller parts.
const LAST_PART_BYTES: usize = 512 << 10;

/// The staging of one device: its chunks and threads, made when they are first needed and kept.
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
    /// Whether two addresses, the second of them the higher, lie in one allocation. What the driver does not tell counts as no.
    fn are_one_allocation(&self, before: DevicePtr, at: DevicePtr) -> bool {
        let mut start: DevicePtr = 0;
        let mut which = [POINTER_RANGE_START];
        let mut place = [(&raw mut start).cast::<c_void>()];
        // SAFETY: one attribute, and a local of its type; the address is looked at as a number.
        let code =
            unsafe { (self.driver.pointer_get_attributes)(1, which.as_mut_ptr(), place.as_mut_ptr(), at) };
        code == SUCCESS && start != 0 && start <= before
    }
}

// SAFETY: the driver takes its handles on every thread.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Staging {
    /// Nothing is allocated or started yet. `context` outlives it.
    pub(crate) fn new(driver: Driver, context: Context) -> Self {
        let cuda = Cuda { driver, context };
        let large = Arc::new(Ring::new(cuda, CHUNK_BYTES, 4, MOST_CHUNKS));
        Self {
            cuda,
            small: Ring::new(cuda, SMALL_CHUNK_BYTES, 16, MOST_SMALL_CHUNKS),
            workers: Workers::new(cuda, large.clone()),
            large,
        }
    }

    /// Copies each `(to, from, bytes)`. Returns when all that is read has been read, so that it may change; the copies are
    /// enqueued by then, so that what follows on `stream` comes after them. No order among the pieces.
    ///
    /// # Errors
    /// The driver's code, with the function's name. Some of the pieces may have been copied.
    ///
    /// # Safety
    /// The context is current on this thread and `stream`, one of it, is not under capture. Sources are readable host memory
    /// for the call, targets are memory of the device that nothing else uses until the copies have run.
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

    /// Copies each `(to, from, bytes)` after what `stream` has been given. Returns when all bytes have arrived. No order
    /// among the pieces.
    ///
    /// # Errors
    /// As [`Staging::host_to_device`].
    ///
    /// # Safety
    /// The context is current on this thread and `stream`, one of it, is not under capture. Sources are memory of the device,
    /// targets are host memory that this call alone uses until it returns.
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
        let are_one = |before, at| self.cuda.are_one_allocation(before, at);
        let total = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.bytes));
        if total <= ALONE_BYTES {
            let ring = if total <= SMALL_CHUNK_BYTES { &self.small } else { &self.large };
            let job = Job::new(direction, stream, Cut::new(pieces, |_| ring.chunk_bytes(), are_one));
            return job.run_alone(ring);
        }
        let part = (total / (2 * self.workers.width())).next_multiple_of(64 << 10);
        let part = part.clamp(LEAST_PART_BYTES, CHUNK_BYTES);
        let last = self.workers.width() * LAST_PART_BYTES;
        let most = |before: usize| match direction {
            Direction::ToHost if before.saturating_add(last) >= total => part.min(LAST_PART_BYTES),
            _ => part,
        };
        let cut = Cut::new(pieces, most, are_one);
        let job = Arc::new(Job::new(direction, stream, cut));
        self.workers.with(&job, || job.lead(&self.large, &self.workers))
    }
}
