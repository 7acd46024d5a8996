//! Blocks whose last use may still be to come, and how they go back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crossdock_plugin_api::Result;

use crate::cuda::context::Gpu;
use crate::cuda::driver::{DevicePtr, RawEvent, RawStream, SUCCESS};

/// Blocks of a pool that were used elsewhere than on the stream that they were allocated on, or seen by strangers.
///
/// A stream of their own waits for all that must come first, and each block stays here until an event on that stream has
/// passed. Whoever allocates or releases next looks for that, and frees the block with `cuMemFree`, after which any stream
/// may have it. A free in the order of that stream would be there for others only once the driver itself has seen it pass:
/// see docs/decisions/0007. Nobody waits on the host.
pub(crate) struct Frees {
    gpu: Arc<Gpu>,
    /// Gets nothing but waits, and what could not be freed in another way.
    stream: Stream,
    state: Mutex<State>,
    /// As many as are pending: read without the lock where that says that there is nothing to do.
    count: AtomicUsize,
}

/// Where more waits than this, the stream that allocates waits for it.
const MOST_PENDING_BYTES: usize = 256 << 20;

#[derive(Default)]
struct State {
    /// In the order in which their events pass.
    pending: VecDeque<Block>,
    pending_bytes: usize,
}

/// One that goes back after an event on the stream.
#[derive(Clone, Copy)]
struct Block {
    base: DevicePtr,
    bytes: usize,
    after: RawEvent,
}

// SAFETY: the driver takes events on every thread.
unsafe impl Send for Block {}

struct Stream(RawStream);

// SAFETY: the driver takes streams on every thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Frees {
    /// The context is current.
    pub(crate) fn new(gpu: Arc<Gpu>) -> Result<Self> {
        let stream = Stream(gpu.take_stream()?);
        Ok(Self { gpu, stream, state: Mutex::default(), count: AtomicUsize::new(0) })
    }

    /// The stream that waits for what must come before a block goes back.
    pub(crate) fn stream(&self) -> RawStream {
        self.stream.0
    }

    /// Bytes of the blocks that have not gone back yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.lock().pending_bytes
    }

    /// Takes a block, which goes back after all that the stream has been given so far. The context is current. On an error
    /// it stays the caller's.
    pub(crate) fn add(&self, base: DevicePtr, bytes: usize) -> Result<()> {
        let mut state = self.lock();
        // With the lock held, so that the list is in the order of the stream.
        let after = self.gpu.record(self.stream.0)?;
        state.pending.push_back(Block { base, bytes, after });
        state.pending_bytes += bytes;
        self.count.store(state.pending.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Frees what has passed, unless somebody else is at it. The context is current.
    pub(crate) fn look(&self) {
        if let Some(mut state) = self.look_in() {
            self.free_passed(&mut state);
        }
    }

    /// The same before an allocation on `stream`, which waits for all of it where too much is pending. What is freed in its
    /// order is there for its own next allocation at once.
    pub(crate) fn make_room(&self, stream: RawStream) {
        let Some(mut state) = self.look_in() else { return };
        self.free_passed(&mut state);
        let Some(newest) = state.pending.back().filter(|_| state.pending_bytes > MOST_PENDING_BYTES) else {
            return;
        };
        let _relaxed = self.gpu.relaxed();
        if self.gpu.wait(stream, newest.after).is_ok() {
            // What the driver does not take stays pending.
            self.free_in_order(&mut state, stream);
        }
    }

    /// Waits on the host for all that is pending, and frees it. The context is current.
    pub(crate) fn settle(&self) {
        let newest = self.lock().pending.back().copied();
        let _relaxed = self.gpu.relaxed();
        if let Some(newest) = newest {
            // Without the lock. Should the event have gone back to be used again, then what was pending here has passed,
            // and the wait is for something newer.
            // SAFETY: an event of this context; none is destroyed before the context goes.
            unsafe { (self.gpu.driver.event_synchronize)(newest.after) };
            self.free_passed(&mut self.lock());
        }
    }

    /// Frees a block that nothing uses any more. The context is current.
    pub(crate) fn free(&self, base: DevicePtr, bytes: usize) {
        let _relaxed = self.gpu.relaxed();
        if !self.free_at_once(base) {
            // It is tried again. Where not even an event is to be had, it is lost.
            drop(self.add(base, bytes));
        }
    }

    /// The state, if there is something in it and nobody else has it.
    fn look_in(&self) -> Option<MutexGuard<'_, State>> {
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
            // SAFETY: an event of this context, which stays in the list.
            let passed = unsafe { (self.gpu.driver.event_query)(block.after) } == SUCCESS;
            if !passed || !self.free_at_once(block.base) {
                break;
            }
            self.gpu.give_event(block.after);
            state.pending_bytes -= block.bytes;
            state.pending.pop_front();
        }
        self.count.store(state.pending.len(), Ordering::Relaxed);
    }

    /// Whether the driver took it.
    fn free_at_once(&self, base: DevicePtr) -> bool {
        let driver = &self.gpu.driver;
        // SAFETY: allocated from the pool, and not freed yet; all that used it has run, as the host has seen. Where that is
        // refused, the stream's order does as well.
        unsafe {
            (driver.mem_free)(base) == SUCCESS || (driver.mem_free_async)(base, self.stream.0) == SUCCESS
        }
    }

    /// Frees all that is pending on `stream`, which comes after it.
    fn free_in_order(&self, state: &mut State, stream: RawStream) {
        let mut freed_bytes = 0;
        state.pending.retain(|block| {
            // SAFETY: allocated from the pool, and not freed yet; the stream comes after all that used it.
            let refused = unsafe { (self.gpu.driver.mem_free_async)(block.base, stream) } != SUCCESS;
            if !refused {
                freed_bytes += block.bytes;
                self.gpu.give_event(block.after);
            }
            refused
        });
        state.pending_bytes -= freed_bytes;
        self.count.store(state.pending.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        let mut state = std::mem::take(&mut *self.lock());
        if let Ok(_entered) = self.gpu.enter() {
            let _relaxed = self.gpu.relaxed();
            self.free_in_order(&mut state, self.stream.0);
        }
        state.pending.drain(..).for_each(|block| self.gpu.give_event(block.after));
        self.gpu.give_stream(self.stream.0);
    }
}

#[cfg(test)]
mod tests;
