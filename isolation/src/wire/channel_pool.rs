//! A pool with a limited number of channels. A thread that needs a channel takes an idle channel,
//! opens a channel, or waits.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{Condvar, Mutex, MutexGuard};

/// A pool of channels of type `T`.
pub struct ChannelPool<T> {
    state: Mutex<State<T>>,
    /// Notified when a channel has become idle, was closed, or could not be opened.
    changed: Condvar,
    max: usize,
}

struct State<T> {
    idle: Vec<T>,
    /// The number of idle channels and taken channels.
    count: usize,
}

impl<T> ChannelPool<T> {
    /// Creates an empty pool for at most `max` channels.
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

    /// Takes an idle channel, or opens a channel. Only one thread at a time opens a channel.
    /// Returns `None` if neither was possible within `timeout`.
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
            // This thread consumed the notification but did not use the free capacity, so it
            // notifies another thread.
            Err(_) => self.changed.notify_one(),
        }
        channel.map(Some)
    }

    /// Returns a taken channel to the pool. `None` means that the channel was closed.
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
