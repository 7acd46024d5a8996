//! The synchronisation types of [`super::channel_pool`]. The model of the pool in tests/models uses
//! the types of loom instead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
