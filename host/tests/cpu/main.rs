//! Tests of the host that need no device: discovery, refusals, loading, and calls of plugins on the
//! CPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod decode_in_create;
mod discovery;
mod foreign_memory;
mod load;
mod needs;
mod policy;
mod programs;
mod programs_without_decode;
mod sealed;
mod security_page;
