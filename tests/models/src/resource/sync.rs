pub(super) use loom::sync::atomic::AtomicUsize;
pub(super) use loom::sync::{Arc, Mutex, MutexGuard};
