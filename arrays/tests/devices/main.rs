//! Tests that run on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod compute;
mod concatenate;
mod decode_dictionary;
mod every_type;
mod filter;
mod launches;
mod lifetimes;
mod pending;
mod printing;
mod take;
mod validation;
