//! What needs no device besides memory of the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod by_value;
mod checks;
mod ends;
mod hostile_arrays;
mod plain;
mod properties;
mod schemas;
