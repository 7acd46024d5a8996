//! Tests that need no device except the CPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod by_value;
mod checks;
mod hostile_arrays;
mod last_offsets;
mod plain;
mod projections;
mod properties;
mod schemas;
mod type_names;
