//! The kernels on every device. One program, so that the emulator of the CUDA sources is compiled once.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
mod contents;
mod images;
mod library;
mod oracle;
mod tensors;
