//! Tests several crates together, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod at_exit;
mod decoder_failures;
mod encoded_bytes;
mod encodings;
mod parts;
mod plans;
mod tables;
mod third_parties;
