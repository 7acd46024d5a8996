//! Synchronisation primitives of [`super::list`]. The model of the list (tests/models) replaces
//! these primitives by loom's primitives.

pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread::{ThreadId, current};
