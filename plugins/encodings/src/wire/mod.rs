//! What an encoded array says about itself in bytes: types, metadata, scalar values. Pure functions over host bytes,
//! which believe nothing of what they are given; nothing here knows a device.

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
