//! Tests of the host's work with arrays, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod convert;
mod fragments;
mod kernels;
mod pending;
mod scans;
mod tables;
mod trace;
