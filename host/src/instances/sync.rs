//! Synchronisation primitives of [`super::list`]. Its model (tests/models) uses loom's instead.

pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread::{ThreadId, current};
