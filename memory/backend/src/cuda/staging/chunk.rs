//! Defines chunks of pinned memory, each with an event after which the chunk may be reused.

use crossdock_plugin_api::Result;

use super::Cuda;
use super::copy_plan::{CopyPlan, Slice};
use crate::cuda::driver::{EVENT_DISABLE_TIMING, RawEvent, RawStream, SUCCESS};
use crate::read_at::ReadAt;

/// Minimum size in bytes of a range whose pages are populated in advance.
const MIN_POPULATE_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// A range of pinned memory in one of the ring's slabs. It has one owner at a time.
pub(super) struct Chunk {
    start: *mut u8,
    event: RawEvent,
    /// Whether the device may still be using the chunk. False once the driver has reported that
    /// `event` has passed.
    pending: bool,
    /// The stream on which `event` was last recorded. It is only compared and never passed to the
    /// driver, because the stream may have been destroyed.
    stream: RawStream,
}

// SAFETY: neither pinned memory nor an event is bound to a thread.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Creates a chunk with its own event. The context must be current, and `start` must point to
    /// pinned memory of the size of the ring's chunks.
    pub(super) fn new(cuda: &Cuda, start: *mut u8) -> Result<Self> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (cuda.driver.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        cuda.driver.check("cuEventCreate", code)?;
        Ok(Self { start, event, pending: false, stream: std::ptr::null_mut() })
    }

    /// Whether the chunk is known to be free. If the query fails, the chunk counts as busy, and
    /// [`Self::wait`] returns the error.
    pub(super) fn is_free(&mut self, cuda: &Cuda) -> bool {
        let _relaxed = cuda.driver.relaxed();
        // SAFETY: the event belongs to this chunk and is alive.
        self.pending = self.pending && unsafe { (cuda.driver.event_query)(self.event) } != SUCCESS;
        !self.pending
    }

    /// Whether work on `stream` was using the chunk at the last query.
    pub(super) fn is_pending_on(&self, stream: RawStream) -> bool {
        self.pending && self.stream == stream
    }

    /// Blocks until the device is done with the chunk. After an error, the device may still be
    /// using it.
    pub(super) fn wait(&mut self, cuda: &Cuda) -> Result<()> {
        if self.is_free(cuda) {
            return Ok(());
        }
        let _relaxed = cuda.driver.relaxed();
        // SAFETY: the event belongs to this chunk and is alive.
        let code = unsafe { (cuda.driver.event_synchronize)(self.event) };
        cuda.driver.check("cuEventSynchronize", code)?;
        self.pending = false;
        Ok(())
    }

    /// Copies the bytes of part `n` from host memory into the chunk, or reads them from `source`.
    pub(super) fn gather(&mut self, plan: &CopyPlan, n: usize, source: Option<&dyn ReadAt>) -> Result<()> {
        for Slice { piece, offset, .. } in plan.part(n) {
            if let Some(source) = source {
                // SAFETY: no part is longer than a chunk, and `&mut self` is the only access to the
                // chunk.
                let to = unsafe { std::slice::from_raw_parts_mut(self.start.add(*offset), piece.bytes) };
                source.read(piece.host.addr() as u64, to)?;
                continue;
            }
            // SAFETY: no part is longer than a chunk, and `&mut self` is the only access to the
            // chunk. The source is readable by the contract of `host_to_device`, which does not
            // return before this copy is done.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.host.cast_const(), self.start.add(*offset), piece.bytes)
            };
        }
        Ok(())
    }

    /// Copies the bytes of part `n`, which have arrived in the chunk, to their targets in host
    /// memory.
    pub(super) fn scatter(&mut self, plan: &CopyPlan, n: usize) {
        for Slice { piece, offset, .. } in plan.part(n) {
            // SAFETY: no part is longer than a chunk, and `&mut self` is the only access to the
            // chunk. The target is writable by the contract of `device_to_host`, which does not
            // return before this copy is done.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.add(*offset).cast_const(), piece.host, piece.bytes)
            };
        }
    }

    /// Enqueues the copies of part `n` on `stream`, and records the chunk's event after them. The
    /// chunk is in use until the event has passed, even after an error.
    pub(super) fn enqueue(
        &mut self,
        cuda: &Cuda,
        stream: RawStream,
        plan: &CopyPlan,
        n: usize,
        to_device: bool,
    ) -> Result<()> {
        let mut enqueued = Ok(());
        for run in plan.runs(n) {
            let chunk_address = self.start.wrapping_add(run.offset) as u64;
            let (to, from) =
                if to_device { (run.device, chunk_address) } else { (chunk_address, run.device) };
            // SAFETY: the host range is in the chunk, which is not used again before its event has
            // passed. The device range is valid by the contract of `host_to_device` or
            // `device_to_host`.
            let code = unsafe { (cuda.driver.memcpy_async)(to, from, run.bytes, stream) };
            enqueued = cuda.driver.check("cuMemcpyAsync", code);
            if enqueued.is_err() {
                break;
            }
        }
        // SAFETY: the event belongs to this chunk, and the stream to the same context.
        let recorded =
            cuda.driver.check("cuEventRecord", unsafe { (cuda.driver.event_record)(self.event, stream) });
        self.pending = recorded.is_ok();
        self.stream = stream;
        if recorded.is_err() {
            // If no event was recorded, this thread waits for the stream. If that fails too, the
            // device has stopped.
            let _relaxed = cuda.driver.relaxed();
            // SAFETY: `stream` is a live stream of this context.
            unsafe { (cuda.driver.stream_synchronize)(stream) };
        }
        enqueued.and(recorded)
    }

    /// Destroys the event. The device must be done with the chunk.
    pub(super) fn destroy(self, cuda: &Cuda) {
        // SAFETY: `new` created the event, and `self` is its only owner.
        unsafe { (cuda.driver.event_destroy)(self.event) };
    }
}

/// Populates the pages of part `n`'s targets in host memory while the bytes are in flight, with one
/// system call per target. An error is ignored, because the pages are then populated one by one
/// when they are written.
pub(super) fn populate(plan: &CopyPlan, n: usize) {
    for Slice { piece, .. } in plan.part(n) {
        let start = (piece.host as usize).next_multiple_of(PAGE_BYTES);
        let end = (piece.host as usize).saturating_add(piece.bytes) & !(PAGE_BYTES - 1);
        if end.saturating_sub(start) >= MIN_POPULATE_BYTES {
            // SAFETY: the range consists of whole pages of a target, which is writable by the
            // contract of `device_to_host`. The call populates the pages without changing their
            // contents.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_POPULATE_WRITE) };
        }
    }
}
