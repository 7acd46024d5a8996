//! Tests that need no device except the CPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod malformed;
mod properties;
