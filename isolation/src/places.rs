//! Places, no more than so many, made as they are needed: who finds none idle, and no room for one more, waits for one.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// Those that there are.
pub struct Places<T> {
    state: Mutex<State<T>>,
    /// One is idle, or gone, or could not be made.
    returned: Condvar,
    most: usize,
}

struct State<T> {
    idle: Vec<T>,
    /// Those that somebody has included.
    count: usize,
}

impl<T> Places<T> {
    /// None yet.
    pub fn new(most: usize) -> Self {
        let state = State { idle: Vec::new(), count: 0 };
        Self { state: Mutex::new(state), returned: Condvar::new(), most }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works while nobody makes a place.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let _turn = self.lock();
        work()
    }

    /// Whether who takes one now waits for none.
    pub fn has_room(&self) -> bool {
        let state = self.lock();
        !state.idle.is_empty() || state.count < self.most
    }

    /// An idle one, or one that is made, by one thread at a time; `None` where there was neither in this time.
    pub fn take<E>(&self, within: Duration, make: impl FnOnce() -> Result<T, E>) -> Result<Option<T>, E> {
        let mut state = self.lock();
        let begun = Instant::now();
        while state.idle.is_empty() && state.count >= self.most {
            let left = within.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(idle) = state.idle.pop() {
            return Ok(Some(idle));
        }
        let made = make();
        match &made {
            Ok(_) => state.count += 1,
            // There is room still, of which the next who waits is to know: it was told to this one alone.
            Err(_) => self.returned.notify_one(),
        }
        made.map(Some)
    }

    /// One that was taken; `None` where it is gone.
    pub fn give_back(&self, place: Option<T>) {
        let mut state = self.lock();
        match place {
            Some(place) => state.idle.push(place),
            None => state.count -= 1,
        }
        drop(state);
        self.returned.notify_one();
    }
}
