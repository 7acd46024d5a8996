//! Tests the kernels on every device. All tests are in one program, so that the emulator of the
//! CUDA sources is compiled only once.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
mod contents;
mod images;
mod library;
mod oracle;
mod tensors;
