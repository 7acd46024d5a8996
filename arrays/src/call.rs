//! Chooses streams and moves batches for the calls of a plugin's functions.

use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::Call;

use crate::DeviceBatch;

/// Returns the stream of the call if it belongs to `device`, else the default stream of `device`.
pub fn call_stream(memory: &Memory, call: &Call<'_>, device: Device) -> Result<Stream> {
    if device == call.device() {
        // SAFETY: `device` is the call's device. `Call` guarantees that its stream belongs to that
        // device and lives as long as the call.
        unsafe { Stream::from_call(memory, device, call.stream()) }
    } else {
        memory.default_stream(device)
    }
}

impl DeviceBatch {
    /// Moves the batch to `target`, which is the call's device or the CPU. If the batch is on
    /// `target` already or has no buffers, it is returned unchanged.
    pub fn move_for_call(self, memory: &Memory, call: &Call<'_>, target: Device) -> Result<DeviceBatch> {
        let has_no_buffers = self.columns().iter().all(|c| c.buffers().is_empty() && c.children().is_empty());
        if self.device() == target || has_no_buffers {
            return Ok(self);
        }
        // A copy between host and device runs on a stream of the device, so choose a stream of the
        // device that is not the CPU.
        let stream_device = if target == Device::CPU { self.device() } else { target };
        self.move_to(&call_stream(memory, call, stream_device)?, target)
    }
}
