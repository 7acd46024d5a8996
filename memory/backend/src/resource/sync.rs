//! The synchronisation types of [`super::limited`] and [`super::pool`]. Their models in
//! tests/models have loom's instead.

pub(super) use std::sync::atomic::AtomicUsize;
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
