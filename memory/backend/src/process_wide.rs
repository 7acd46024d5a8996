//! Values of the whole process behind locks that no forked child finds locked.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A value of the whole process, behind a lock.
///
/// A fork copies a locked `Mutex` without the thread that would unlock it. So a forked child has a lock of its own: over the parent's
/// value, or over `T::default()` if another thread had the parent's lock at the time of the fork and may have been changing the value.
pub struct ProcessWide<T>(AtomicPtr<Owned<T>>);

/// The value of one process. It is never freed.
struct Owned<T> {
    process: u32,
    value: Mutex<T>,
}

impl<T: Default + Send + 'static> ProcessWide<T> {
    /// With `T::default()`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Waits for the lock. A panic of whoever had it does not matter.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        let process = std::process::id();
        loop {
            let current = self.0.load(Ordering::Acquire);
            // SAFETY: NULL, or leaked below.
            let owned: Option<&'static Owned<T>> = unsafe { current.as_ref() };
            if let Some(owned) = owned
                && owned.process == process
            {
                return owned.value.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let own: &'static Owned<T> = Box::leak(Box::new(Owned { process, value: Mutex::default() }));
            // Before anybody else can lock it.
            let mut value = own.value.lock().unwrap_or_else(PoisonError::into_inner);
            let pointer = std::ptr::from_ref(own).cast_mut();
            if self.0.compare_exchange(current, pointer, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // Another thread was first. What is leaked here is leaked at most once by each thread.
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
