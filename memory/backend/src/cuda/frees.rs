//! Blocks that went back on the freeing stream, and who may take them again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::Result;

use super::context::Gpu;
use super::driver::{RawEvent, RawStream, SUCCESS};

/// The driver's pool hands memory that was freed on one stream out on another one only where it can tell that the second
/// comes after the first. So each stream that allocates is made to follow the frees that have passed already: that holds
/// nothing up, and without it the pool grows with every block that was lent.
pub(crate) struct Frees {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
    /// The numbers of the last free that was enqueued, and of the last one that is known to have passed.
    last: AtomicU64,
    passed: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Each free's number, and the event after it, in order.
    pending: VecDeque<(u64, Event)>,
    passed: Option<Event>,
}

#[derive(Clone, Copy)]
struct Event(RawEvent);

// SAFETY: the driver takes events on every thread.
unsafe impl Send for Event {}

impl Frees {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, state: Mutex::default(), last: AtomicU64::new(0), passed: AtomicU64::new(0) }
    }

    /// After a free on `freeing`. The context is current. One that cannot be followed is reused later, or not at all.
    pub(crate) fn note(&self, freeing: RawStream) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(event) = self.gpu.record(freeing) else { return };
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        state.pending.push_back((number, Event(event)));
    }

    /// Makes `stream`, which follows the frees up to `followed`, follow all that have passed. The context is current.
    pub(crate) fn follow(&self, stream: RawStream, followed: &AtomicU64) -> Result<()> {
        let (last, passed) = (self.last.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed));
        let upto = followed.load(Ordering::Relaxed);
        if upto == last && passed == last {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((number, event)) = state.pending.front().copied() {
            // SAFETY: an event of this context, which stays alive in `state`.
            if unsafe { (self.gpu.driver.event_query)(event.0) } != SUCCESS {
                break;
            }
            state.pending.pop_front();
            if let Some(older) = state.passed.replace(event) {
                self.gpu.give_event(older.0);
            }
            self.passed.store(number, Ordering::Relaxed);
        }
        let passed = self.passed.load(Ordering::Relaxed);
        match state.passed {
            Some(event) if passed > upto => {
                self.gpu.wait(stream, event.0)?;
                followed.store(passed, Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pending = state.pending.drain(..).map(|(_, event)| event);
        pending.chain(state.passed.take()).for_each(|event| self.gpu.give_event(event.0));
    }
}
