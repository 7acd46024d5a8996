//! The synchronisation types of [`super::queue`]. Its models in tests/models have loom's instead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
