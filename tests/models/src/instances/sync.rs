pub(super) use loom::sync::{Mutex, MutexGuard};
pub(super) use loom::thread::{ThreadId, current};
