//! Tests of the host's work with arrays, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arrow_streams;
#[path = "../common/mod.rs"]
mod common;
mod convert;
mod fragments;
mod inputs;
mod kernels;
mod pending;
mod scans;
mod tables;
mod trace;
