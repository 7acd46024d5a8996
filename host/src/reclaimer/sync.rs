//! Synchronisation primitives of [`super::queue`]. Its models (tests/models) use loom's instead.

pub(super) use std::sync::atomic::{AtomicUsize, fence};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
