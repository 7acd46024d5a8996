//! Synchronisation primitives of [`super::queue`]. The models of the queue (tests/models) replace
//! these primitives by loom's primitives.

pub(super) use std::sync::atomic::{AtomicUsize, fence};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
