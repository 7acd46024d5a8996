//! Passes values from one thread to another, one at a time. A wait for a value ends at once when
//! the call of the waiting thread is cancelled.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossdock_plugin_api::Cancel;

/// How often the flag is read if it cannot be subscribed to.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Creates the two ends.
pub fn handoff<T>() -> (Giver<T>, Taker<T>) {
    let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
    (Giver(shared.clone()), Taker(shared))
}

/// The end that gives values.
pub struct Giver<T>(Arc<Shared<T>>);

/// The end that takes values.
pub struct Taker<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    value: Option<T>,
    is_closed: bool,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self { value: None, is_closed: false }
    }
}

/// The result of taking a value.
pub enum Taken<T> {
    Value(T),
    /// There is no value yet.
    NotYet,
    /// The giver was dropped.
    Closed,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl<T> Giver<T> {
    /// Waits until the value was taken. Returns false if the taker was dropped instead.
    pub fn give(&self, value: T) -> bool {
        let mut state = self.0.lock();
        state.value = Some(value);
        self.0.changed.notify_all();
        while state.value.is_some() && !state.is_closed {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_closed
    }
}

impl<T: Send + 'static> Taker<T> {
    /// Takes the value if there is one.
    pub fn try_take(&self) -> Taken<T> {
        self.take_from(&mut self.0.lock())
    }

    /// Waits for a value. Returns `NotYet` only after `cancel` is set, or after an interval if the
    /// flag cannot be subscribed to.
    pub fn take(&self, cancel: Cancel<'_>) -> Taken<T> {
        match self.try_take() {
            Taken::NotYet => {}
            taken => return taken,
        }
        let shared = self.0.clone();
        let subscription = cancel.subscribe(move || {
            // The waiting thread reads the flag under this lock, so it does not miss this.
            let _state = shared.lock();
            shared.changed.notify_all();
        });
        let mut state = self.0.lock();
        loop {
            match self.take_from(&mut state) {
                Taken::NotYet if cancel.is_set() => return Taken::NotYet,
                Taken::NotYet => {}
                taken => return taken,
            }
            if subscription.is_ok() {
                state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let waited = self.0.changed.wait_timeout(state, POLL_INTERVAL);
                let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = waited;
                if timeout.timed_out() {
                    return self.take_from(&mut state);
                }
            }
        }
    }

    fn take_from(&self, state: &mut State<T>) -> Taken<T> {
        match state.value.take() {
            Some(value) => {
                self.0.changed.notify_all();
                Taken::Value(value)
            }
            None if state.is_closed => Taken::Closed,
            None => Taken::NotYet,
        }
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::CancelFlag;

    use super::*;

    #[test]
    fn giver_waits_until_each_value_is_taken() {
        let (giver, taker) = handoff();
        assert!(matches!(taker.try_take(), Taken::NotYet));
        std::thread::scope(|scope| {
            let given = scope.spawn(move || (giver.give(1), giver.give(2)));
            let cancel = CancelFlag::new();
            let mut values = Vec::new();
            while let Taken::Value(value) = taker.take(cancel.as_cancel()) {
                values.push(value);
            }
            assert_eq!((values, given.join().unwrap()), (vec![1, 2], (true, true)));
            assert!(matches!(taker.try_take(), Taken::Closed));
        });
    }

    #[test]
    fn dropping_the_taker_ends_the_wait_of_the_giver() {
        let (giver, taker) = handoff();
        std::thread::scope(|scope| {
            let given = scope.spawn(move || giver.give(1));
            drop(taker);
            assert!(!given.join().unwrap());
        });
    }

    #[test]
    fn cancellation_ends_the_wait_of_the_taker() {
        let (_giver, taker) = handoff::<i32>();
        let cancel = CancelFlag::new();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| matches!(taker.take(cancel.as_cancel()), Taken::NotYet));
            std::thread::sleep(Duration::from_millis(20));
            cancel.cancel();
            assert!(taken.join().unwrap());
        });
    }
}
