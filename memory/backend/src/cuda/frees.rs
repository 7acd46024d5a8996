//! Blocks that went back on the freeing stream, and who may take them again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::Result;

use super::context::Gpu;
use super::driver::{RawEvent, RawStream, SUCCESS};

/// The driver's pool hands memory that was freed on one stream out on another one only where it can tell that the second
/// comes after the first. So each stream that allocates is made to follow the frees that have passed already, which holds
/// nothing up. That alone is not always enough: see docs/decisions/0007.
pub(crate) struct Frees {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
    /// The numbers of the last free that was enqueued, and of the last one that is known to have passed.
    last: AtomicU64,
    passed: AtomicU64,
}

const MOST_PENDING_BYTES: u64 = 256 << 20;

#[derive(Default)]
struct State {
    pending: VecDeque<Free>,
    pending_bytes: u64,
    passed: Option<Event>,
}

/// One free, in order.
#[derive(Clone, Copy)]
struct Free {
    number: u64,
    bytes: u64,
    /// After it.
    event: Event,
}

#[derive(Clone, Copy)]
struct Event(RawEvent);

// SAFETY: the driver takes events on every thread.
unsafe impl Send for Event {}

impl Frees {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, state: Mutex::default(), last: AtomicU64::new(0), passed: AtomicU64::new(0) }
    }

    /// After a free of `bytes` on `freeing`. The context is current. One that cannot be followed is reused later, or not at
    /// all.
    pub(crate) fn note(&self, freeing: RawStream, bytes: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(event) = self.gpu.record(freeing) else { return };
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        state.pending.push_back(Free { number, bytes: bytes as u64, event: Event(event) });
        state.pending_bytes += bytes as u64;
    }

    /// Makes `stream`, which follows the frees up to `followed`, follow all that have passed, and more where too much is
    /// pending. The context is current.
    pub(crate) fn follow(&self, stream: RawStream, followed: &AtomicU64) -> Result<()> {
        let (last, passed) = (self.last.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed));
        let upto = followed.load(Ordering::Relaxed);
        if upto == last && passed == last {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(free) = state.pending.front().copied() {
            // SAFETY: an event of this context, which stays alive in `state`.
            if unsafe { (self.gpu.driver.event_query)(free.event.0) } != SUCCESS {
                break;
            }
            state.pending.pop_front();
            state.pending_bytes -= free.bytes;
            if let Some(older) = state.passed.replace(free.event) {
                self.gpu.give_event(older.0);
            }
            self.passed.store(free.number, Ordering::Relaxed);
        }
        let newest = state.pending.back().filter(|_| state.pending_bytes > MOST_PENDING_BYTES);
        let (number, event) = match newest {
            Some(free) => (free.number, Some(free.event)),
            None => (self.passed.load(Ordering::Relaxed), state.passed),
        };
        if let Some(event) = event.filter(|_| number > upto) {
            self.gpu.wait(stream, event.0)?;
            followed.store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pending = state.pending.drain(..).map(|free| free.event);
        pending.chain(state.passed.take()).for_each(|event| self.gpu.give_event(event.0));
    }
}
