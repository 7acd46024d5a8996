//! What [`super::books`] synchronises with. Its model (tests/models) has loom's in this place.

pub(super) use std::sync::atomic::{AtomicI64, AtomicU64};
pub(super) use std::sync::{Mutex, MutexGuard, OnceLock};
