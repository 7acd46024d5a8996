//! Loom's, and what it lacks.

use std::cell::UnsafeCell;

use loom::sync::atomic::{AtomicBool, Ordering};

pub(super) use loom::sync::atomic::{AtomicI64, AtomicU64};
pub(super) use loom::sync::{Mutex, MutexGuard};

/// As the standard library's: who finds a value sees all that came before it was set.
pub(super) struct OnceLock<T> {
    setting: Mutex<()>,
    is_set: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is set once, under a lock, before `is_set` says so, and never changed.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    pub(super) fn new() -> Self {
        Self { setting: Mutex::new(()), is_set: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    pub(super) fn get(&self) -> Option<&T> {
        // SAFETY: once it is set nobody writes it.
        if self.is_set.load(Ordering::Acquire) { unsafe { (*self.value.get()).as_ref() } } else { None }
    }

    pub(super) fn get_or_init(&self, make: impl FnOnce() -> T) {
        let _setting = self.setting.lock().unwrap();
        if !self.is_set.load(Ordering::Relaxed) {
            let value = make();
            // SAFETY: nobody reads it before it is set, and the lock is held.
            unsafe { *self.value.get() = Some(value) };
            self.is_set.store(true, Ordering::Release);
        }
    }
}
