//! Plugins and hosts of other releases and toolchains, combined with the current ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod encodings;
mod hosts;
mod matrix;
mod rejections;
