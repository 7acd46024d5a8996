//! The synchronisation types that [`super::counters`] uses. The model of the counters in
//! tests/models uses the types of loom instead.

pub(super) use std::sync::atomic::{AtomicI64, AtomicU64};
pub(super) use std::sync::{Mutex, MutexGuard, OnceLock};
