//! What works the same on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod dictionaries;
mod ends;
mod golden_files;
mod hostile_bytes;
mod large_bodies;
mod older_writers;
mod pipes_and_plans;
mod round_trips;
