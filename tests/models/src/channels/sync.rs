pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
