//! The C library, driven from C. None of it needs a device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

mod example;
mod functions;
mod header;
