//! Types of integers in buffers: native byte order, any alignment.

use crossdock_plugin_api::{Error, Result};

/// The width and signedness of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntType {
    /// Bytes per integer: 1, 2, 4, 8 or 16.
    pub width_bytes: usize,
    /// Whether the integers are signed.
    pub signed: bool,
}

/// Rejects a width of offsets other than 4 and 8.
pub(crate) fn check_offset_width(width: usize) -> Result<()> {
    if width == 4 || width == 8 {
        return Ok(());
    }
    Err(Error::internal(format!("a kernel cannot read offsets of {width} bytes, expected 4 or 8")))
}
