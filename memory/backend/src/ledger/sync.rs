//! The synchronisation types of [`super::counters`]. Its model in tests/models has loom's instead.

pub(super) use std::sync::atomic::{AtomicI64, AtomicU64};
pub(super) use std::sync::{Mutex, MutexGuard, OnceLock};
