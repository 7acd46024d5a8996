//! Frees blocks whose last use may not have completed yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crossdock_plugin_api::Result;

use crate::cuda::context::Gpu;
use crate::cuda::driver::{DevicePtr, RawEvent, RawStream, SUCCESS};

/// Pending frees of a pool. A free becomes pending if the block was exported to another library, or
/// was used on a stream that did not allocate it.
///
/// A separate stream waits for all uses of a block, and the block stays pending until an event on
/// that stream has passed. Each allocation and each release of the pool queries the events, and
/// frees the blocks whose events have passed with `cuMemFree`. Any stream may then reuse the
/// memory. A free in the order of the separate stream would not make the memory available to other
/// streams until the host has waited for the free: see docs/decisions/0007. No thread waits.
pub(crate) struct PendingFrees {
    gpu: Arc<Gpu>,
    /// The separate stream. It runs only waits, and the frees for which no other way exists.
    stream: Stream,
    state: Mutex<State>,
    /// Number of pending blocks, which can be read without locking `state`.
    count: AtomicUsize,
}

/// If more bytes than this are pending, the stream of the next allocation waits for all pending
/// frees.
const MAX_PENDING_BYTES: usize = 256 << 20;

#[derive(Default)]
struct State {
    /// The pending blocks, in the order in which their events pass.
    pending: VecDeque<Block>,
    pending_bytes: usize,
}

/// A block that is freed after an event on the separate stream.
#[derive(Clone, Copy)]
struct Block {
    base: DevicePtr,
    bytes: usize,
    after: RawEvent,
}

// SAFETY: the driver accepts events on any thread.
unsafe impl Send for Block {}

struct Stream(RawStream);

// SAFETY: the driver accepts streams on any thread.
unsafe impl Send for Stream {}
// SAFETY: the driver accepts a stream on several threads at the same time.
unsafe impl Sync for Stream {}

impl PendingFrees {
    /// Creates the separate stream. The context must be current.
    pub(crate) fn new(gpu: Arc<Gpu>) -> Result<Self> {
        let stream = Stream(gpu.take_stream()?);
        Ok(Self { gpu, stream, state: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// The separate stream, which waits for all uses of a block before the block is freed.
    pub(crate) fn stream(&self) -> RawStream {
        self.stream.0
    }

    /// Number of pending bytes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.lock().pending_bytes
    }

    /// Takes ownership of a block and frees it after the work enqueued so far on the separate
    /// stream. After an error the caller keeps the block. The context must be current.
    pub(crate) fn add(&self, base: DevicePtr, bytes: usize) -> Result<()> {
        let mut state = self.lock();
        // The event is recorded while the lock is held, so that the list has the order of the
        // events on the stream.
        let after = self.gpu.record(self.stream.0)?;
        state.pending.push_back(Block { base, bytes, after });
        state.pending_bytes += bytes;
        self.count.store(state.pending.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Frees blocks whose events have passed, unless another thread is doing so. The context must
    /// be current.
    pub(crate) fn try_free_passed(&self) {
        if let Some(mut state) = self.try_lock_pending() {
            self.free_passed(&mut state);
        }
    }

    /// Frees the blocks whose events have passed, before an allocation on `stream`. If more than
    /// [`MAX_PENDING_BYTES`] bytes remain pending, `stream` waits for all pending blocks and frees
    /// them in stream order, which makes their memory available to the next allocation on `stream`
    /// at once.
    pub(crate) fn make_room(&self, stream: RawStream) {
        let Some(mut state) = self.try_lock_pending() else { return };
        self.free_passed(&mut state);
        let Some(newest) = state.pending.back().filter(|_| state.pending_bytes > MAX_PENDING_BYTES) else {
            return;
        };
        let _relaxed = self.gpu.relaxed();
        if self.gpu.wait(stream, newest.after).is_ok() {
            // Blocks that the driver does not free stay pending.
            self.free_in_order(&mut state, stream);
        }
    }

    /// Blocks until the events of all pending blocks have passed, and frees these blocks. The
    /// context must be current.
    pub(crate) fn settle(&self) {
        let newest = self.lock().pending.back().copied();
        let _relaxed = self.gpu.relaxed();
        if let Some(newest) = newest {
            // Waits without holding the lock. If the event passes, another thread may reuse it for
            // newer work before this call begins. This call then only waits longer.
            // SAFETY: the event belongs to this context; events are destroyed only with the
            // context.
            unsafe { (self.gpu.driver.event_synchronize)(newest.after) };
            self.free_passed(&mut self.lock());
        }
    }

    /// Frees a block that nothing uses any more. The context must be current.
    pub(crate) fn free(&self, base: DevicePtr, bytes: usize) {
        let _relaxed = self.gpu.relaxed();
        if !self.try_free(base) {
            // A later call tries again. If `add` cannot record an event, the block leaks.
            drop(self.add(base, bytes));
        }
    }

    /// Locks the state; `None` if nothing is pending or another thread has the lock.
    fn try_lock_pending(&self) -> Option<MutexGuard<'_, State>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn free_passed(&self, state: &mut State) {
        let _relaxed = self.gpu.relaxed();
        while let Some(block) = state.pending.front() {
            // SAFETY: the event belongs to this context, and stays in the list during the call.
            let is_passed = unsafe { (self.gpu.driver.event_query)(block.after) } == SUCCESS;
            if !is_passed || !self.try_free(block.base) {
                break;
            }
            self.gpu.return_event(block.after);
            state.pending_bytes -= block.bytes;
            state.pending.pop_front();
        }
        self.count.store(state.pending.len(), Ordering::Relaxed);
    }

    /// Frees a block that nothing uses any more. Returns `false` if the driver does not free it.
    fn try_free(&self, base: DevicePtr) -> bool {
        let driver = &self.gpu.driver;
        // SAFETY: the block was allocated from the pool and has not been freed, and all its uses
        // have run, as the callers ensure. This satisfies the requirements of both functions.
        unsafe {
            (driver.mem_free)(base) == SUCCESS || (driver.mem_free_async)(base, self.stream.0) == SUCCESS
        }
    }

    /// Frees all pending blocks in the order of `stream`, which already waits for their uses.
    fn free_in_order(&self, state: &mut State, stream: RawStream) {
        let mut freed_bytes = 0;
        state.pending.retain(|block| {
            // SAFETY: the block was allocated from the pool and has not been freed, and `stream`
            // already waits for its uses.
            let is_rejected = unsafe { (self.gpu.driver.mem_free_async)(block.base, stream) } != SUCCESS;
            if !is_rejected {
                freed_bytes += block.bytes;
                self.gpu.return_event(block.after);
            }
            is_rejected
        });
        state.pending_bytes -= freed_bytes;
        self.count.store(state.pending.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingFrees {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.lock());
        if let Ok(_entered) = self.gpu.enter() {
            let _relaxed = self.gpu.relaxed();
            self.free_in_order(&mut state, self.stream.0);
        }
        state.pending.drain(..).for_each(|block| self.gpu.return_event(block.after));
        self.gpu.return_stream(self.stream.0);
    }
}

#[cfg(test)]
mod tests;
