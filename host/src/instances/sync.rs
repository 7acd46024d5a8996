//! What [`super::list`] synchronises with. Its model (tests/models) has loom's in this place.

pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread::{ThreadId, current};
