//! Tests the backend on every device. Without a CUDA driver, tests of CUDA devices report that they
//! are skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod cuda;
mod devices;
mod invalid_arguments;
mod launch;
