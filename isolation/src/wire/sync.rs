//! The synchronisation types of [`super::channel_pool`]. Its model in tests/models uses loom's
//! instead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
