//! `libcrossdock.so`: the host for applications in C and C++.
//!
//! `include/crossdock-host.h` is the specification, and [`abi`] contains its structs. Every
//! exported function is one call into [`door`], whose closure converts the arguments with
//! [`arguments`] and calls the Rust host.

mod abi;
mod arguments;
mod candidates;
mod convert;
mod door;
mod host;
mod inputs;
mod lists;
mod log;
mod outputs;
mod parts;
mod plan;
mod read;
mod scan;
mod session;
mod stream;
mod version;
mod write;
mod writer;
