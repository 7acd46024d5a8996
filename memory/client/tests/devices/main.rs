//! Tests the client of the memory interface on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod buffer_builder;
mod buffers;
mod encoded_bytes;
mod foreign_memory;
mod host_kernels;
mod loader;
mod tasks;
mod waits;
