//! Mapped and sealed files.

pub(crate) mod mapping;
pub(crate) mod seal;
pub mod truncated;
