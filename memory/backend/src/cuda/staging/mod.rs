//! Copies between a device and ordinary host memory at the speed of the link.
//!
//! The driver's own copy reaches a sixth of that speed, because it uses one small pinned buffer on
//! the caller's thread. Here several threads copy to or from a ring of pinned chunks, while the
//! device copies other chunks. With sixteen cores and an H200, whose link has a speed of 55.5 GB/s,
//! this copies 51 GB/s in either direction. The design is based on measurements:
//!
//! - Chunks have 2 MiB. Chunks of 1 MiB reach only 47 GB/s, and chunks of 512 KiB only 43 GB/s,
//!   because the link is idle between copies. Chunks of 8 MiB are hardly faster.
//! - The threads use ordinary `memcpy`. With large chunks, non-temporal stores, prefetching and
//!   huge pages are no faster.
//! - All copies run on the caller's stream. Several streams are no faster, and one stream keeps the
//!   copies in order.
//! - Threads wait for events by spinning, which is the driver's default. With sleeping threads,
//!   copies to the device are 2 GB/s slower, and copies to newly allocated host memory are 5 GB/s
//!   slower.
//! - The last parts of a copy to the host are small. This makes a copy of 256 MiB 1 GB/s faster,
//!   and a copy of 64 MiB 3 GB/s faster.
//! - Mapped files are copied through chunks. Registering their memory with the driver instead
//!   reaches only 28 GB/s.
//!
//! Small copies run on the caller's thread alone, and share a chunk.

mod chunk;
mod copy_plan;
mod job;
mod ring;
#[cfg(test)]
mod tests;
mod workers;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_plugin_api::Result;

use self::copy_plan::{CopyPlan, Piece};
use self::job::{Direction, Job};
use self::ring::Ring;
use self::workers::Workers;
use super::context::Gpu;
use super::driver::{
    Context, DevicePtr, Driver, POINTER_RANGE_SIZE, POINTER_RANGE_START, RawStream, SUCCESS,
};
use crate::read_at::{LoadPiece, ReadAt};
use crate::tasks::InstanceTasks;

const CHUNK_BYTES: usize = 2 << 20;
/// Three chunks for each of twelve threads, and a quarter of all chunks for concurrent copies.
const MAX_CHUNKS: usize = 48;
/// Size in bytes of the chunks for small copies. It is small, so that many small copies can be in
/// flight.
const SMALL_CHUNK_BYTES: usize = 64 << 10;
const MAX_SMALL_CHUNKS: usize = 64;
/// Copies of up to this number of bytes run on the caller's thread alone, which completes them
/// before other threads could wake up.
const MAX_SINGLE_THREAD_BYTES: usize = 512 << 10;
/// Minimum size in bytes of the parts of a copy that runs on several threads.
const MIN_PART_BYTES: usize = 256 << 10;

/// Maximum number of threads that read one batch of a file. Eight threads read a file in the page
/// cache at 38.6 GB/s on a machine with 32 cores; 16 threads read 35.4 GB/s and 32 threads 29.6
/// GB/s, because the parts become small and the threads wait for each other.
const MAX_LOAD_THREADS: usize = 8;

/// Size in bytes of the last parts of a copy to the host. While the threads copy these parts to
/// their targets, no other parts arrive, so the parts are small to occupy more threads.
const LAST_PART_BYTES: usize = 512 << 10;

/// The chunks and worker threads for the copies of one device. Both are created when they are first
/// needed, and then kept.
pub(crate) struct Staging {
    cuda: Cuda,
    small: Ring,
    workers: Workers,
    large: Arc<Ring>,
    /// The number of loads that run on several threads.
    n_loads: AtomicUsize,
}

/// The driver, and the context of one device.
#[derive(Clone, Copy)]
struct Cuda {
    driver: Driver,
    context: Context,
}

impl Cuda {
    /// The addresses of the allocation that contains `address`. `None` if the driver reports no
    /// allocation.
    fn allocation(&self, address: DevicePtr) -> Option<Range<DevicePtr>> {
        let (mut start, mut bytes): (DevicePtr, usize) = (0, 0);
        let mut which = [POINTER_RANGE_START, POINTER_RANGE_SIZE];
        let mut values = [(&raw mut start).cast::<c_void>(), (&raw mut bytes).cast()];
        // SAFETY: both lists have two entries, and the variables have the types of the attributes.
        // The driver does not dereference the address.
        let code = unsafe {
            (self.driver.pointer_get_attributes)(2, which.as_mut_ptr(), values.as_mut_ptr(), address)
        };
        (code == SUCCESS && start != 0).then(|| start..start.saturating_add(bytes as u64))
    }

    /// Returns a function that tells whether two addresses belong to one allocation. It remembers
    /// the last allocation, because the driver runs the calls of all threads one after the other.
    fn same_allocation(&self) -> impl FnMut(DevicePtr, DevicePtr) -> bool {
        let mut last = 0..0;
        move |lower, upper| {
            if !last.contains(&upper) {
                last = self.allocation(upper).unwrap_or(0..0);
            }
            last.contains(&upper) && last.contains(&lower)
        }
    }
}

// SAFETY: the driver accepts its handles on any thread.
unsafe impl Send for Cuda {}
// SAFETY: the driver accepts its handles on several threads at the same time.
unsafe impl Sync for Cuda {}

impl Staging {
    /// Does not allocate chunks or start threads yet. `context` must outlive the result.
    pub(crate) fn new(driver: Driver, context: Context) -> Self {
        let cuda = Cuda { driver, context };
        let large = Arc::new(Ring::new(cuda, CHUNK_BYTES, 4, MAX_CHUNKS));
        Self {
            cuda,
            small: Ring::new(cuda, SMALL_CHUNK_BYTES, 16, MAX_SMALL_CHUNKS),
            workers: Workers::new(cuda, large.clone()),
            large,
            n_loads: AtomicUsize::new(0),
        }
    }

    /// Copies each `(to, from, bytes)` of `pieces`, in any order. When the function returns, all
    /// sources have been read and may change. The copies have been enqueued on `stream`, so later
    /// work on it runs after them.
    ///
    /// # Errors
    /// Returns the driver's error, which names the driver's function. Some pieces may have been
    /// copied.
    ///
    /// # Safety
    /// The context is current on this thread. `stream` belongs to the context and is not under
    /// capture. Sources are readable host memory during the call; targets are memory of the device
    /// that nothing else uses until the copies have run.
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

    /// Copies each `(to, from, bytes)` of `pieces`, in any order, after the work that is enqueued
    /// on `stream`. Returns when all bytes have been written to their targets.
    ///
    /// # Errors
    /// The same as for [`Staging::host_to_device`].
    ///
    /// # Safety
    /// The context is current on this thread. `stream` belongs to the context and is not under
    /// capture. Sources are memory of the device; targets are host memory that only this call uses
    /// until it returns.
    pub(crate) unsafe fn device_to_host(
        &self,
        stream: RawStream,
        pieces: &[(*mut u8, DevicePtr, usize)],
    ) -> Result<()> {
        let pieces: Vec<_> =
            pieces.iter().map(|&(host, device, bytes)| Piece { device, host, bytes }).collect();
        self.run(Direction::ToHost, stream, &pieces)
    }

    /// Reads ranges of a source into chunks, on the threads of `tasks`, and copies them to the
    /// device. When the function returns, all bytes have been read. The copies have been enqueued
    /// on `stream`, so later work on it runs after them. If `source` is sequential, it is read by
    /// this thread, in order.
    ///
    /// # Errors
    /// Returns the error of the source, or the driver's error. Some ranges may have been copied.
    ///
    /// # Safety
    /// `gpu` has the context of this staging, which is current on this thread. `stream` belongs to
    /// the context and is not under capture. Targets are memory of the device that nothing else
    /// uses until the copies have run.
    pub(crate) unsafe fn load(
        &self,
        gpu: &Gpu,
        stream: RawStream,
        source: &dyn ReadAt,
        pieces: &[LoadPiece],
        tasks: &InstanceTasks,
    ) -> Result<()> {
        let piece = |piece: &LoadPiece| Piece {
            device: piece.to as u64,
            // The plan only adds to this address. It is an offset in the source.
            host: std::ptr::without_provenance_mut(piece.offset as usize),
            bytes: piece.bytes,
        };
        let pieces: Vec<_> = pieces.iter().map(piece).collect();
        let total = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.bytes));
        if total <= MAX_SINGLE_THREAD_BYTES || source.is_sequential() {
            let ring = if total <= SMALL_CHUNK_BYTES { &self.small } else { &self.large };
            let plan = CopyPlan::new(&pieces, |_| ring.chunk_bytes(), self.cuda.same_allocation());
            return Job::from_source(source, stream, plan).run_alone(ring);
        }
        let active = Active::new(&self.n_loads);
        let width = tasks.width().min(MAX_LOAD_THREADS);
        let part_bytes = part_bytes(total, width / active.n);
        let job = Job::from_source(
            source,
            stream,
            CopyPlan::new(&pieces, |_| part_bytes, self.cuda.same_allocation()),
        );
        let shared = tasks.share(job.len().min(width), &|| {
            // If the context cannot be entered here, the threads that can enter it do the work.
            let Ok(_entered) = gpu.enter() else { return false };
            let _relaxed = gpu.relaxed();
            while job.run_part(&self.large) {}
            false
        });
        job.finish(&self.large).and(shared)
    }

    fn run(&self, direction: Direction, stream: RawStream, pieces: &[Piece]) -> Result<()> {
        let total = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.bytes));
        if total <= MAX_SINGLE_THREAD_BYTES {
            let ring = if total <= SMALL_CHUNK_BYTES { &self.small } else { &self.large };
            let job = Job::new(
                direction,
                stream,
                CopyPlan::new(pieces, |_| ring.chunk_bytes(), self.cuda.same_allocation()),
            );
            return job.run_alone(ring);
        }
        let part_bytes = part_bytes(total, self.workers.width());
        let last_bytes = self.workers.width() * LAST_PART_BYTES;
        let max_bytes = |offset: usize| match direction {
            Direction::ToHost if offset.saturating_add(last_bytes) >= total => {
                part_bytes.min(LAST_PART_BYTES)
            }
            _ => part_bytes,
        };
        let plan = CopyPlan::new(pieces, max_bytes, self.cuda.same_allocation());
        let job = Arc::new(Job::new(direction, stream, plan));
        self.workers.with(&job, || job.lead(&self.large, &self.workers))
    }
}

/// The size in bytes of the parts of a copy that runs on `width` threads.
fn part_bytes(total: usize, width: usize) -> usize {
    (total / (2 * width.max(1))).next_multiple_of(64 << 10).clamp(MIN_PART_BYTES, CHUNK_BYTES)
}

/// Counts a running load.
struct Active<'a> {
    count: &'a AtomicUsize,
    /// The number of running loads, including this one.
    n: usize,
}

impl<'a> Active<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { count, n: count.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
