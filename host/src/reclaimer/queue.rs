//! Queues values. One thread drops each value once only the queue refers to the value.
//!
//! The models in tests/models run this file under loom, in every order that threads and the memory
//! model allow.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, fence};

/// A value with a reference count.
pub(crate) trait Counted {
    /// Whether only the owner refers to the value. The implementation may load the count with
    /// relaxed ordering.
    fn is_idle(&self) -> bool;
}

/// Pending values, and the threads that wait until they are dropped.
pub(crate) struct ReclaimQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// The number of values that are pending or being dropped. While it is 0, releasing a reference
    /// to a value needs no lock.
    count: AtomicUsize,
}

struct State<T> {
    /// The pending values, in the order of their numbers.
    pending: Vec<(u64, T)>,
    /// The values that are being dropped.
    busy: Option<Busy>,
    next_number: u64,
}

struct Busy {
    /// The lowest number among the values that are being dropped.
    first: u64,
    len: usize,
    /// The time at which the drop of the first of the values began.
    since: Instant,
}

/// Counts the values that the current round still has to drop. If a drop panics, the guard counts
/// these values as dropped.
struct RoundGuard<'a, T: Counted> {
    queue: &'a ReclaimQueue<T>,
    remaining: usize,
}

impl<T: Counted> Drop for RoundGuard<'_, T> {
    fn drop(&mut self) {
        // If the drop of one value panics, unwinding through `round` drops the remaining values.
        if self.remaining > 0 {
            self.queue.finish(self.remaining, None);
        }
    }
}

impl<T> Default for ReclaimQueue<T> {
    fn default() -> Self {
        let state = State { pending: Vec::new(), busy: None, next_number: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), count: AtomicUsize::new(0) }
    }
}

impl<T: Counted> ReclaimQueue<T> {
    /// Adds a value, which the thread that runs [`Self::round`] drops as soon as it is idle.
    pub(crate) fn add(&self, item: T) {
        let mut state = self.state();
        self.count.fetch_add(1, Ordering::SeqCst);
        let number = state.next_number;
        state.next_number += 1;
        state.pending.push((number, item));
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a reference count was decremented, with release ordering, so that a value may be
    /// idle.
    pub(crate) fn reference_gone(&self) {
        // This fence pairs with the first fence in `is_idle`. Either `is_idle` reads the new
        // reference count, or this function reads the new number of pending values.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            // This thread holds the lock, so the thread that drops values has not read the
            // reference counts yet, or is already waiting. Therefore, that thread does not miss the
            // notification.
            drop(self.state());
            self.changed.notify_all();
        }
    }

    /// Blocks until at least one value is idle, and drops all idle values.
    pub(crate) fn round(&self) {
        let mut state = self.state();
        let idle = loop {
            let (idle, pending): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.pending).into_iter().partition(|(_, item)| is_idle(item));
            state.pending = pending;
            if !idle.is_empty() {
                break idle;
            }
            state = self.wait(state);
        };
        let mut guard = RoundGuard { queue: self, remaining: idle.len() };
        let first = idle.first().map(|(number, _)| *number);
        state.busy = first.map(|first| Busy { first, len: guard.remaining, since: Instant::now() });
        drop(state);
        let mut idle = idle.into_iter();
        while let Some((_, item)) = idle.next() {
            drop(item);
            guard.remaining -= 1;
            self.finish(1, idle.as_slice().first().map(|(number, _)| *number));
        }
    }

    /// Notes that `n` of the busy values are dropped, and that the value numbered `next` is dropped
    /// next.
    fn finish(&self, n: usize, next: Option<u64>) {
        let mut state = self.state();
        self.count.fetch_sub(n, Ordering::SeqCst);
        state.busy = state.busy.take().zip(next).map(|(busy, first)| Busy {
            first,
            len: busy.len.saturating_sub(n),
            since: Instant::now(),
        });
        drop(state);
        self.changed.notify_all();
    }

    /// Blocks until all values that are pending and idle at the time of the call are dropped, or
    /// until the time `until`. Ignores values that are added later, because otherwise the call
    /// might never return.
    pub(crate) fn settle(&self, until: Option<Instant>) {
        let mut state = self.state();
        let end = state.next_number;
        let is_due = |state: &State<T>| {
            state.busy.as_ref().is_some_and(|busy| busy.first < end)
                || state.pending.iter().any(|(number, item)| *number < end && is_idle(item))
        };
        while is_due(&state) {
            let Some(woken) = self.wait_until(state, until) else { return };
            state = woken;
        }
    }

    /// Blocks while more than `max_idle` values are idle and not yet dropped. Returns after
    /// `max_delay`, or once a single drop takes longer than `max_drop`.
    pub(crate) fn wait_for_room(&self, max_idle: usize, max_drop: Duration, max_delay: Duration) {
        // The usual case needs no lock. A value that is being added may be missed.
        if self.count.load(Ordering::Acquire) <= max_idle {
            return;
        }
        let begin = Instant::now();
        let mut state = self.state();
        let n_idle = |state: &State<T>| {
            let busy = state.busy.as_ref().map_or(0, |busy| busy.len);
            busy + state.pending.iter().filter(|(_, item)| is_idle(item)).count()
        };
        while n_idle(&state) > max_idle {
            let since = state.busy.as_ref().map_or(begin, |busy| busy.since);
            let until =
                [since.checked_add(max_drop), begin.checked_add(max_delay)].into_iter().flatten().min();
            let Some(woken) = self.wait_until(state, until) else { return };
            state = woken;
        }
    }

    /// Returns the results of `f` for the pending values.
    pub(crate) fn filter_map<R>(&self, f: impl Fn(&T) -> Option<R>) -> Vec<R> {
        self.state().pending.iter().filter_map(|(_, item)| f(item)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the state. Returns `None` once the time `until` has passed.
    fn wait_until<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        until: Option<Instant>,
    ) -> Option<MutexGuard<'a, State<T>>> {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => None,
            Some(remaining) => {
                Some(self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0)
            }
            None => Some(self.wait(state)),
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_idle(item: &impl Counted) -> bool {
    // This fence pairs with the fence in `reference_gone`. Either this function reads the new
    // reference count, or `reference_gone` reads the new number of pending values.
    fence(Ordering::SeqCst);
    let is_idle = item.is_idle();
    // This fence pairs with the releasing decrements, so that writes by former holders are visible
    // to the drop.
    fence(Ordering::Acquire);
    is_idle
}
