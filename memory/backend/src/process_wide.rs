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

/// The value of one process, which is never freed.
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
            // SAFETY: the pointer is NULL, or points to a value that `Box::leak` below leaked.
            let owned: Option<&'static Owned<T>> = unsafe { current.as_ref() };
            if let Some(owned) = owned
                && owned.process == process
            {
                return owned.value.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let new: &'static Owned<T> = Box::leak(Box::new(Owned { process, value: Mutex::default() }));
            // The new value is locked before another thread can access it.
            let mut value = new.value.lock().unwrap_or_else(PoisonError::into_inner);
            let pointer = std::ptr::from_ref(new).cast_mut();
            if self.0.compare_exchange(current, pointer, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // Another thread stored its value first, so `new` is leaked. Each thread leaks at
                // most one value here.
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
