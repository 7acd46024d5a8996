//! Runs the plugin in a test host on literal trees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dictionaries;
mod export;
mod kinds;
mod runs_in_blocks;
mod tree;
