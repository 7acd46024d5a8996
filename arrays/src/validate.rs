//! Whether an array's contents keep Arrow's rules.

use crossdock_memory::{Error, Result, Stream};

use crate::DeviceBatch;

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What the host can see: counts, lengths, missing buffers, devices.
    Layout,
    /// That and the contents, by kernels on the device.
    Full,
}

/// Checks a batch; the error names the column.
pub fn validate(_: &DeviceBatch, level: Level, _: &Stream) -> Result<()> {
    match level {
        // No batch exists that was not checked so when it was made.
        Level::Layout => Ok(()),
        Level::Full => Err(Error::unsupported("validation in full comes next")),
    }
}
