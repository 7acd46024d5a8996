//! What [`super::limited`] and [`super::pool`] synchronise with. Their models (tests/models) have loom's in this place.

pub(super) use std::sync::atomic::AtomicUsize;
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
