//! Tests of the client on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod buffer_builder;
mod buffers;
mod encoded_bytes;
mod foreign_memory;
mod host_kernels;
mod waits;
