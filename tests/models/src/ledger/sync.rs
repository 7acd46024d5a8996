//! Re-exports loom's types, and defines a `OnceLock`, which loom lacks.

use std::cell::UnsafeCell;

use loom::sync::atomic::{AtomicBool, Ordering};

pub(super) use loom::sync::atomic::{AtomicI64, AtomicU64};
pub(super) use loom::sync::{Mutex, MutexGuard};

/// Has the memory order of the standard library's type: a thread that reads the value also observes
/// all writes that happened before the value was set.
pub(super) struct OnceLock<T> {
    setting: Mutex<()>,
    is_set: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, under a lock and before `is_set` is true, and never changed.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    pub(super) fn new() -> Self {
        Self { setting: Mutex::new(()), is_set: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    pub(super) fn get(&self) -> Option<&T> {
        // SAFETY: `is_set` is true, and after that the value is never written.
        if self.is_set.load(Ordering::Acquire) { unsafe { (*self.value.get()).as_ref() } } else { None }
    }

    pub(super) fn get_or_init(&self, make: impl FnOnce() -> T) {
        let _setting = self.setting.lock().unwrap();
        if !self.is_set.load(Ordering::Relaxed) {
            let value = make();
            // SAFETY: no thread reads the value before `is_set` is true, and the lock is held.
            unsafe { *self.value.get() = Some(value) };
            self.is_set.store(true, Ordering::Release);
        }
    }
}
