//! The host without a device: what is found, refused and loaded, and what a session asks of plugins that only the CPU sees.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod decode_early;
mod discovery;
mod load;
mod needs;
mod outside;
mod policy;
mod programs;
mod programs_alone;
mod sealed;
mod security_page;
