//! Vortex's protocol, import and export.

pub mod buffer;
pub mod export;
pub mod import;
