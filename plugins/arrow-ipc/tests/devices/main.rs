//! Tests that run on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod device_lz4;
mod dictionaries;
mod ends_of_input;
mod fragments;
mod golden_files;
mod large_bodies;
mod malformed;
mod older_writers;
mod pipes_and_plans;
mod round_trips;
mod selections;
