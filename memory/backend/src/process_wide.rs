//! Process-wide values behind locks that a forked child never finds locked.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A process-wide value behind a lock.
///
/// A fork copies a locked `Mutex` without the thread that would unlock it. Therefore a forked child
/// creates its own lock, and moves the parent's value into it. If another thread held the parent's
/// lock at the fork, that thread may have been changing the value, so the child begins with
/// `T::default()`.
pub struct ProcessWide<T>(AtomicPtr<Owned<T>>);

/// The value of one process, which is never freed once other threads can find it.
struct Owned<T> {
    process: u32,
    value: Mutex<T>,
}

impl<T: Default + Send + 'static> ProcessWide<T> {
    /// Creates a value `T::default()`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Locks the value, and ignores poisoning.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        let process = std::process::id();
        loop {
            let current = self.0.load(Ordering::Acquire);
            // SAFETY: the pointer is NULL, or points to a value that was stored below, and stored
            // values are not freed.
            let owned: Option<&'static Owned<T>> = unsafe { current.as_ref() };
            if let Some(owned) = owned
                && owned.process == process
            {
                return owned.value.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let pointer = Box::into_raw(Box::new(Owned { process, value: Mutex::default() }));
            // SAFETY: the value was just allocated, and is freed below only after the last use of
            // `new`.
            let new: &'static Owned<T> = unsafe { &*pointer };
            // The new value is locked before another thread can access it.
            let mut value = new.value.lock().unwrap_or_else(PoisonError::into_inner);
            if self.0.compare_exchange(current, pointer, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // Another thread stored its value first.
                drop(value);
                // SAFETY: the pointer was not stored, so no other thread has it, and this thread
                // does not use the value any more.
                drop(unsafe { Box::from_raw(pointer) });
                continue;
            }
            match owned.map(|parents| parents.value.try_lock()) {
                Some(Ok(mut parents)) => *value = std::mem::take(&mut *parents),
                Some(Err(TryLockError::Poisoned(error))) => *value = std::mem::take(&mut *error.into_inner()),
                Some(Err(TryLockError::WouldBlock)) | None => {}
            }
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn threads_that_lock_first_at_the_same_time_share_one_value() {
        static COUNT: ProcessWide<usize> = ProcessWide::new();
        const THREADS: usize = 8;
        let barrier = Arc::new(Barrier::new(THREADS));
        let count = || {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                barrier.wait();
                *COUNT.lock() += 1;
            })
        };
        let threads: Vec<_> = (0..THREADS).map(|_| count()).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
        assert_eq!(*COUNT.lock(), THREADS);
    }
}
