//! Tests several crates together. These tests need no device except host memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod cpp_plugin;
mod csv;
mod failures;
mod garbage;
mod large_trees;
mod lifetimes;
mod linked;
mod names;
mod panics;
mod plugin_page;
mod recognition;
mod reports;
mod stalled;
