//! Parses the metadata of encodings.
//!
//! All functions are pure functions over host bytes and check their input.

pub mod metadata;

pub use crossdock_vortex_types::{PType, dtype, dtype_write, protobuf, ptype, scalar};
