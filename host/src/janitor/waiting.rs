//! What is dropped as soon as nobody else refers to it, by one thread. tests/models runs this very file in every order that
//! threads and their memory allow.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, fence};

/// Something with a count of the references to it.
pub(crate) trait Counted {
    /// Whether the count says that only its owner refers to it. Any order of memory does.
    fn is_idle(&self) -> bool;
}

/// What waits, and for whom it is dropped.
pub(crate) struct Waiting<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// How many wait or are being dropped, so that who lets go of a reference needs no lock while there are none.
    count: AtomicUsize,
}

struct State<T> {
    /// In the order in which they came, with their numbers.
    waiting: Vec<(u64, T)>,
    /// Those that are being dropped just now.
    busy: Option<Busy>,
    next: u64,
}

struct Busy {
    /// The lowest of their numbers.
    first: u64,
    how_many: usize,
    /// Since when the first of them is.
    since: Instant,
}

/// What is being dropped on this thread, and of it how many are still to be.
struct Left<'a, T: Counted>(&'a Waiting<T>, usize);

impl<T: Counted> Drop for Left<'_, T> {
    fn drop(&mut self) {
        // One panicked, and the rest went with it.
        if self.1 > 0 {
            self.0.ended(self.1, None);
        }
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        let state = State { waiting: Vec::new(), busy: None, next: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), count: AtomicUsize::new(0) }
    }
}

impl<T: Counted> Waiting<T> {
    /// Drops it, on the thread that does [`Self::round`], as soon as it is idle.
    pub(crate) fn add(&self, item: T) {
        let mut state = self.state();
        self.count.fetch_add(1, Ordering::SeqCst);
        let number = state.next;
        state.next += 1;
        state.waiting.push((number, item));
        drop(state);
        self.changed.notify_all();
    }

    /// To be called after a count went down, with an order of release: something may have become idle.
    pub(crate) fn reference_gone(&self) {
        // With the one in `is_idle`: either the count is seen there, or the waiting here.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            // The lock, so that the thread is either before its look at the counts or waiting already.
            drop(self.state());
            self.changed.notify_all();
        }
    }

    /// Blocks until something is idle, and drops all that is.
    pub(crate) fn round(&self) {
        let mut state = self.state();
        let idle = loop {
            let (idle, waiting): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.waiting).into_iter().partition(|(_, item)| is_idle(item));
            state.waiting = waiting;
            if !idle.is_empty() {
                break idle;
            }
            state = self.wait(state);
        };
        let (mut left, first) = (Left(self, idle.len()), idle.first().map(|(number, _)| *number));
        state.busy = first.map(|first| Busy { first, how_many: left.1, since: Instant::now() });
        drop(state);
        let mut idle = idle.into_iter();
        while let Some((_, item)) = idle.next() {
            drop(item);
            left.1 -= 1;
            self.ended(1, idle.as_slice().first().map(|(number, _)| *number));
        }
    }

    /// So many of those that are being dropped have been, and this one is next.
    fn ended(&self, n: usize, next: Option<u64>) {
        let mut state = self.state();
        self.count.fetch_sub(n, Ordering::SeqCst);
        state.busy = state.busy.take().zip(next).map(|(busy, first)| Busy {
            first,
            how_many: busy.how_many.saturating_sub(n),
            since: Instant::now(),
        });
        drop(state);
        self.changed.notify_all();
    }

    /// Blocks until all that waits by now and is idle has been dropped, and not for longer than `until`. What comes later is
    /// not waited for, or there would be no end while others work.
    pub(crate) fn settle(&self, until: Option<Instant>) {
        let mut state = self.state();
        let later = state.next;
        let is_due = |state: &State<T>| {
            state.busy.as_ref().is_some_and(|busy| busy.first < later)
                || state.waiting.iter().any(|(number, item)| *number < later && is_idle(item))
        };
        while is_due(&state) {
            let Some(then) = self.wait_until(state, until) else { return };
            state = then;
        }
    }

    /// Blocks while more than `most` are idle and yet to be dropped: for `all` at most, and only while none takes longer than `one`.
    pub(crate) fn wait_for_room(&self, most: usize, one: Duration, all: Duration) {
        // Without the lock for the many who find next to nothing here. What comes in just now may be missed.
        if self.count.load(Ordering::Acquire) <= most {
            return;
        }
        let begin = Instant::now();
        let mut state = self.state();
        let n_idle = |state: &State<T>| {
            let busy = state.busy.as_ref().map_or(0, |busy| busy.how_many);
            busy + state.waiting.iter().filter(|(_, item)| is_idle(item)).count()
        };
        while n_idle(&state) > most {
            let since = state.busy.as_ref().map_or(begin, |busy| busy.since);
            let until = [since.checked_add(one), begin.checked_add(all)].into_iter().flatten().min();
            let Some(then) = self.wait_until(state, until) else { return };
            state = then;
        }
    }

    /// What `f` says of those that wait.
    pub(crate) fn ask<R>(&self, f: impl Fn(&T) -> Option<R>) -> Vec<R> {
        self.state().waiting.iter().filter_map(|(_, item)| f(item)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the time is up.
    fn wait_until<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        until: Option<Instant>,
    ) -> Option<MutexGuard<'a, State<T>>> {
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => None,
            Some(left) => {
                Some(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
            }
            None => Some(self.wait(state)),
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_idle(item: &impl Counted) -> bool {
    // With the one in `reference_gone`: either the count is seen here, or the waiting there.
    fence(Ordering::SeqCst);
    let is_idle = item.is_idle();
    // Pairs with the release of those that are gone: what their holders did has happened.
    fence(Ordering::Acquire);
    is_idle
}
