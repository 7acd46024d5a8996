//! Plugins and hosts of other releases and other toolchains, with those of today.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod encodings;
mod hosts;
mod matrix;
mod refusals;
