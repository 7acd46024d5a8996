//! A piece of pinned memory, and the moment after which it may be used again.

use crossdock_plugin_api::Result;

use super::Cuda;
use super::cut::{Cut, Slice};
use crate::cuda::driver::{EVENT_DISABLE_TIMING, RawEvent, RawStream, SUCCESS};

/// Pages from which on a fault for each is worth avoiding.
const POPULATE_FROM_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// A range of one of the ring's slabs. Whoever has it uses it alone.
pub(super) struct Chunk {
    start: *mut u8,
    event: RawEvent,
    /// Whether the device may still be using it, until `event`.
    pending: bool,
    /// On which `event` was recorded last. A number: the stream may be gone.
    stream: RawStream,
}

// SAFETY: pinned memory and an event, neither of which cares for the thread.
unsafe impl Send for Chunk {}

impl Chunk {
    /// With an event of its own; the context is current, and `start` begins as many bytes of pinned memory as the ring's
    /// chunks have.
    pub(super) fn new(cuda: &Cuda, start: *mut u8) -> Result<Self> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a pointer to a local; the context is current.
        let code = unsafe { (cuda.driver.event_create)(&mut event, EVENT_DISABLE_TIMING) };
        cuda.driver.check("cuEventCreate", code)?;
        Ok(Self { start, event, pending: false, stream: std::ptr::null_mut() })
    }

    /// Whether it is known that it may be used now. Where the driver fails to say so, whoever needs it waits, and hears why.
    pub(super) fn is_free(&mut self, cuda: &Cuda) -> bool {
        let _relaxed = cuda.driver.relaxed();
        // SAFETY: our own event, alive as long as this.
        self.pending = self.pending && unsafe { (cuda.driver.event_query)(self.event) } != SUCCESS;
        !self.pending
    }

    /// Whether it waited for work on `stream` when it was looked at last.
    pub(super) fn is_pending_on(&self, stream: RawStream) -> bool {
        self.pending && self.stream == stream
    }

    /// Blocks until the device is done with it. After an error nobody knows whether it is.
    pub(super) fn wait(&mut self, cuda: &Cuda) -> Result<()> {
        if self.is_free(cuda) {
            return Ok(());
        }
        let _relaxed = cuda.driver.relaxed();
        // SAFETY: as above.
        let code = unsafe { (cuda.driver.event_synchronize)(self.event) };
        cuda.driver.check("cuEventSynchronize", code)?;
        self.pending = false;
        Ok(())
    }

    /// Reads the host's bytes of part `n` in.
    pub(super) fn gather(&mut self, cut: &Cut, n: usize) {
        for Slice { piece, at, .. } in cut.part(n) {
            // SAFETY: no part is longer than a chunk, which is ours alone; the source is readable by the word of
            // `host_to_device`'s caller, who waits for this.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.host.cast_const(), self.start.add(*at), piece.bytes)
            };
        }
    }

    /// Writes the host's bytes of part `n`, which have arrived here.
    pub(super) fn scatter(&mut self, cut: &Cut, n: usize) {
        for Slice { piece, at, .. } in cut.part(n) {
            // SAFETY: as `gather`; the target is writable by the word of `device_to_host`'s caller, who waits for this.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.add(*at).cast_const(), piece.host, piece.bytes)
            };
        }
    }

    /// Enqueues the device's side of part `n`, and the event after it. Whatever it answers, the chunk is in use until then.
    pub(super) fn enqueue(
        &mut self,
        cuda: &Cuda,
        stream: RawStream,
        cut: &Cut,
        n: usize,
        to_device: bool,
    ) -> Result<()> {
        let mut enqueued = Ok(());
        for run in cut.runs(n) {
            let here = self.start.wrapping_add(run.at) as u64;
            let (to, from) = if to_device { (run.device, here) } else { (here, run.device) };
            // SAFETY: the range lies in the chunk, which is not touched again before its event has passed; the device's
            // side is the caller's word.
            let code = unsafe { (cuda.driver.memcpy_async)(to, from, run.bytes, stream) };
            enqueued = cuda.driver.check("cuMemcpyAsync", code);
            if enqueued.is_err() {
                break;
            }
        }
        // SAFETY: our own event, and a stream of the same context.
        let recorded =
            cuda.driver.check("cuEventRecord", unsafe { (cuda.driver.event_record)(self.event, stream) });
        self.pending = recorded.is_ok();
        self.stream = stream;
        if recorded.is_err() {
            // With no event there is but the stream to wait for. Should that fail too, the device has stopped.
            let _relaxed = cuda.driver.relaxed();
            // SAFETY: a live stream of the context.
            unsafe { (cuda.driver.stream_synchronize)(stream) };
        }
        enqueued.and(recorded)
    }

    /// Lets go of the event; the device is done with the chunk.
    pub(super) fn destroy(self, cuda: &Cuda) {
        // SAFETY: made by `new`, and this is its one owner.
        unsafe { (cuda.driver.event_destroy)(self.event) };
    }
}

/// Has the pages of part `n`'s targets made now, together, while the bytes are under way. A kernel that cannot, or a range
/// that it refuses, costs nothing: then writing makes them, one by one.
pub(super) fn populate(cut: &Cut, n: usize) {
    for Slice { piece, .. } in cut.part(n) {
        let start = (piece.host as usize).next_multiple_of(PAGE_BYTES);
        let end = (piece.host as usize).saturating_add(piece.bytes) & !(PAGE_BYTES - 1);
        if end.saturating_sub(start) >= POPULATE_FROM_BYTES {
            // SAFETY: whole pages of a range that the caller has us write; this faults them in as writing would, and leaves
            // what they hold.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_POPULATE_WRITE) };
        }
    }
}
