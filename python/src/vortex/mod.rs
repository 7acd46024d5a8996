//! Imports and exports encoded arrays with Vortex's protocol.

pub mod buffer;
pub mod export;
pub mod import;
