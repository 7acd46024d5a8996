//! Loom's types, with a different `wait_timeout`. Loom's `wait_timeout` waits forever. The function
//! in this file lets other threads run, and then returns.

use std::ops::{Deref, DerefMut};
use std::sync::LockResult;
use std::time::Duration;

pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

pub(super) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: loom::sync::MutexGuard<'a, T>,
}

pub(super) struct Condvar(loom::sync::Condvar);

impl<T> Mutex<T> {
    pub(super) fn new(mutex: T) -> Self {
        Self(loom::sync::Mutex::new(mutex))
    }

    pub(super) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(MutexGuard { mutex: self, guard: self.0.lock().unwrap() })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl Condvar {
    pub(super) fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(super) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { mutex, guard } = guard;
        Ok(MutexGuard { mutex, guard: self.0.wait(guard).unwrap() })
    }

    pub(super) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let MutexGuard { mutex, guard } = guard;
        drop(guard);
        loom::thread::yield_now();
        Ok((mutex.lock().unwrap(), ()))
    }
}
