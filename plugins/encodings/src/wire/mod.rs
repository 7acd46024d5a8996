//! Parses the serialized parts of encoded arrays: types, metadata and scalar values.
//!
//! All functions are pure functions over host bytes and check their input.

pub mod dtype;
#[cfg(test)]
mod dtype_tests;
pub mod dtype_write;
mod flatbuffer;
pub mod metadata;
pub mod protobuf;
pub mod ptype;
pub mod scalar;

pub use ptype::PType;
