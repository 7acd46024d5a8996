//! Mapped and sealed files.

pub(crate) mod mapping;
pub(crate) mod seal;
pub(crate) mod segment_file;
pub mod truncated;
