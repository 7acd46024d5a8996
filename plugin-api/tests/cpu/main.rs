//! The plugin interface: its layout, its boundary, and releases that differ. None of it needs a device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

mod boundary;
mod encoded;
mod encoded_bytes;
mod encoding;
mod failures;
mod layout;
mod released;
mod sizes;
mod skew;
