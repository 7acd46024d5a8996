//! What works the same on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod buffers;
mod encoded_bytes;
mod growing;
mod host_kernels;
mod strangers;
mod waits;
