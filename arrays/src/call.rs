//! What a plugin's calls ask of batches again and again.

use crossdock_memory::{Device, Memory, Result, Stream};
use crossdock_plugin_api::Call;

use crate::DeviceBatch;

/// The call's stream where it is one of `device`, else that device's default one.
pub fn call_stream(memory: &Memory, call: &Call<'_>, device: Device) -> Result<Stream> {
    if device == call.device() {
        // SAFETY: a call's stream is one of its device, alive for the call.
        unsafe { Stream::of_call(memory, device, call.stream()) }
    } else {
        memory.default_stream(device)
    }
}

impl DeviceBatch {
    /// The batch on `target`, which is where the call wants it or the CPU: itself where it is there.
    pub fn move_for_call(self, memory: &Memory, call: &Call<'_>, target: Device) -> Result<DeviceBatch> {
        let bare = self.columns().iter().all(|c| c.buffers().is_empty() && c.children().is_empty());
        if self.device() == target || bare {
            return Ok(self);
        }
        // A copy between devices runs where the accelerator is, on either side of it.
        let on = if target == Device::CPU { self.device() } else { target };
        self.move_to(&call_stream(memory, call, on)?, target)
    }
}
