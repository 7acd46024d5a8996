//! The plugin over a host for tests, on trees that are written down.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dictionaries;
mod export;
mod kinds;
mod runs_in_blocks;
mod tree;
