//! What spans several crates and needs no device besides memory of the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
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
