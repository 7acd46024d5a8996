//! Whole numbers as they lie in buffers: in native byte order, at any address.

use crossdock_plugin_api::{Error, Result};

/// A width in bytes and signedness of integers that a launcher is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntType {
    /// 1, 2, 4 or 8.
    pub width_bytes: usize,
    /// Whether negative numbers exist.
    pub signed: bool,
}

/// Refuses a width of offsets other than 4 and 8.
pub(crate) fn check_offset_width(width: usize) -> Result<()> {
    if width == 4 || width == 8 {
        return Ok(());
    }
    Err(Error::internal(format!("a kernel was asked for offsets of {width} bytes, expected 4 or 8")))
}
