//! The backend on every device, and what only CUDA devices have. Without a driver, tests of those say that they were skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod cuda;
mod devices;
mod hostile;
