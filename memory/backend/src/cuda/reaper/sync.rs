//! Re-exports the synchronisation types that [`super::queue`] uses. Its models in tests/models use
//! loom's types instead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
