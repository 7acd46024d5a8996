//! From one device to another.

use crossdock_memory::{Device, Error, Result, Stream};

use crate::DeviceBatch;

impl DeviceBatch {
    /// The batch on `device`: itself if it is there already, else a copy in one allocation, of which only the ranges
    /// that a slice needs are taken.
    pub fn move_to(&self, _stream: &Stream, device: Device) -> Result<DeviceBatch> {
        if device == self.device() {
            return Ok(self.clone());
        }
        Err(Error::unsupported("moving batches comes next"))
    }
}
