//! Tests of the plugin interface that need no device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

mod boundary;
mod encoded;
mod encoded_bytes;
mod encoding;
mod failures;
mod inputs;
mod layout;
mod released;
mod sizes;
mod skew;
