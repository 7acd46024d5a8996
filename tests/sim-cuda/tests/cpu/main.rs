//! Tests of the simulated driver, which is linked as a library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

mod capture;
mod devices;
mod exports;
mod kernels;
mod lazy;
mod mapped;
mod memory;
mod order;
mod process;
