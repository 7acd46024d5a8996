//! Tests plugins and hosts of other releases and toolchains together with the current plugins and
//! the current host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod encodings;
mod hosts;
mod matrix;
mod rejections;
