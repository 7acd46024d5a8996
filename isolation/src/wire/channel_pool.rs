//! A pool of at most so many channels. A thread that needs one takes an idle one, opens one, or
//! waits.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// Channels of type `T`.
pub struct ChannelPool<T> {
    state: Mutex<State<T>>,
    /// Notified when a channel has become idle, was closed, or could not be opened.
    changed: Condvar,
    max: usize,
}

struct State<T> {
    idle: Vec<T>,
    /// Idle channels and taken ones.
    count: usize,
}

impl<T> ChannelPool<T> {
    /// An empty pool.
    pub fn new(max: usize) -> Self {
        let state = State { idle: Vec::new(), count: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), max }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` while no thread opens a channel.
    pub fn exclusive<R>(&self, work: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        work()
    }

    /// Whether [`ChannelPool::take`] would return without waiting.
    pub fn has_capacity(&self) -> bool {
        let state = self.lock();
        !state.idle.is_empty() || state.count < self.max
    }

    /// Takes an idle channel, or opens one, one thread at a time. Returns `None` if neither was
    /// possible within `timeout`.
    ///
    /// # Errors
    /// `open` failed.
    pub fn take<E>(&self, timeout: Duration, open: impl FnOnce() -> Result<T, E>) -> Result<Option<T>, E> {
        let mut state = self.lock();
        let start = Instant::now();
        while state.idle.is_empty() && state.count >= self.max {
            let remaining = timeout.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return Ok(None);
            }
            state = self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(idle) = state.idle.pop() {
            return Ok(Some(idle));
        }
        let channel = open();
        match &channel {
            Ok(_) => state.count += 1,
            // The capacity is still free, and this thread consumed the notification: pass it on.
            Err(_) => self.changed.notify_one(),
        }
        channel.map(Some)
    }

    /// Returns a channel that was taken; `None` if it was closed.
    pub fn put_back(&self, channel: Option<T>) {
        let mut state = self.lock();
        match channel {
            Some(channel) => state.idle.push(channel),
            None => state.count -= 1,
        }
        drop(state);
        self.changed.notify_one();
    }
}
