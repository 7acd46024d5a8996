//! Tests of the C library that need no device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

mod cpp;
mod example;
mod functions;
mod header;
mod released;
