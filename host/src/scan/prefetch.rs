//! Reads batches of a scan ahead, on a thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::Error as ApiError;

use super::run::Run;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::source::PipeSource;

/// A thread that reads batches, and the batches that the consumer has not taken yet.
pub(super) struct Prefetch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The input if it is a pipe. Closing it ends a read that waits for another process.
    pipe: Option<Arc<PipeSource>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Result<DeviceBatch>>,
    /// Whether the consumer waits for a batch.
    needed: bool,
    /// Whether the thread adds no more batches.
    ended: bool,
    /// Whether the consumer takes no more batches.
    stopped: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the end of the batches, also if the thread panics.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Prefetch {
    /// Starts a thread that keeps up to `depth` batches ready.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no thread.
    pub fn start(mut run: Run, depth: usize, session: &Session) -> Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let (end, session, pipe) = (End(shared.clone()), session.clone(), run.pipe());
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let work = move || {
            let shared = &end.0;
            let mut largest = 0;
            while wait_for_room(shared, depth, largest, &session) {
                let next = tracing::dispatcher::with_default(&subscriber, || run.next()).transpose();
                let Some(next) = next else { break };
                if let Ok(batch) = &next {
                    largest = largest.max(batch.buffer_bytes());
                }
                let mut state = shared.lock();
                state.batches.push_back(next);
                state.needed = false;
                drop(state);
                shared.changed.notify_all();
            }
            // The reader is dropped before the end is marked.
            drop(run);
        };
        let thread = std::thread::Builder::new().name("crossdock-scan".into()).spawn(work);
        let thread = thread.map_err(|error| Error::io("cannot start the thread of a scan", error))?;
        Ok(Self { shared, thread: Some(thread), pipe })
    }

    /// Waits until a batch is ready, or the end is reached. Returns whether this happened within
    /// `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.shared.lock();
        if state.batches.is_empty() && !state.ended {
            state.needed = true;
            self.shared.changed.notify_all();
            let is_pending = |state: &mut State| state.batches.is_empty() && !state.ended;
            let waited = self.shared.changed.wait_timeout_while(state, timeout, is_pending);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.batches.is_empty() || state.ended
    }

    /// The next batch; `None` at the end and after an error.
    pub fn next(&mut self) -> Result<Option<DeviceBatch>> {
        let mut state = self.shared.lock();
        while state.batches.is_empty() && !state.ended {
            state.needed = true;
            self.shared.changed.notify_all();
            state = self.shared.wait(state);
        }
        let next = state.batches.pop_front();
        let is_last = next.is_none();
        drop(state);
        self.shared.changed.notify_all();
        if is_last && self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            return Err(Error::data(
                "cannot read ahead",
                ApiError::internal("the thread of the scan panicked"),
            ));
        }
        next.transpose()
    }
}

/// Waits until the thread may read another batch. Returns whether it has to.
///
/// Batches that are read ahead count against the memory budget. The thread reads ahead only while
/// at most half of the budget is in use, because the consumer also needs memory for its work on a
/// batch. Otherwise the thread waits until the consumer needs the next batch, so that reading ahead
/// does not exhaust a budget that suffices for one batch at a time.
fn wait_for_room(shared: &Shared, depth: usize, largest: u64, session: &Session) -> bool {
    let has_budget = || {
        let backend = session.host().backend();
        let needed = || session.host().ledger().live_bytes().saturating_add(largest);
        backend.limit_bytes().is_none_or(|limit| needed() <= limit as u64 / 2)
    };
    let mut state = shared.lock();
    loop {
        if state.stopped {
            return false;
        }
        if state.needed || (state.batches.len() < depth && has_budget()) {
            return true;
        }
        state = shared.wait(state);
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(pipe) = &self.pipe {
            pipe.close();
        }
        if let Some(thread) = self.thread.take() {
            // The consumer needs no further result, so a panic of the thread changes nothing.
            let _ = thread.join();
        }
    }
}
