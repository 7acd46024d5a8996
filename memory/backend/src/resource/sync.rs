//! Re-exports the synchronisation types that [`super::limited`] and [`super::pool`] use. The models
//! in tests/models use loom's types instead.

pub(super) use std::sync::atomic::AtomicUsize;
pub(super) use std::sync::{Arc, Mutex, MutexGuard};
