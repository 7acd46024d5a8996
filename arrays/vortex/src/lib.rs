//! Reads and writes the types, scalars and wire formats of Vortex arrays.
//!
//! All functions are pure functions over host bytes and check their input. The plugins `encodings`
//! and `vortex-file` use this crate.

pub mod dtype;
#[cfg(test)]
mod dtype_tests;
pub mod dtype_write;
pub mod flatbuffer;
pub mod protobuf;
pub mod ptype;
pub mod scalar;

pub use ptype::PType;
