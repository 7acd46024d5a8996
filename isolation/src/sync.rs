//! What [`crate::places`] synchronises with. Its models (tests/models) have loom's in this place.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
