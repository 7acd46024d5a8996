pub(super) use loom::sync::atomic::{AtomicUsize, fence};
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
