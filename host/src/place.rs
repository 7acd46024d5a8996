//! Moves batches between devices.

use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::{Device, abi};

use crate::error::{Error, Result};
use crate::session::Session;

/// Whether the host can read memory of the device in place.
pub(crate) fn is_host_memory(device: Device) -> bool {
    matches!(device.r#type, abi::DEVICE_CPU | abi::DEVICE_CUDA_HOST)
}

/// Moves the batch to `device`. A batch that is already on this device is not copied.
///
/// # Errors
/// [`Error::Data`] or [`Error::Device`]. Both name the source device and the target device.
pub(crate) fn move_batch(session: &Session, batch: DeviceBatch, device: Device) -> Result<DeviceBatch> {
    let (from, to) = (batch.device(), device);
    if from == to {
        return Ok(batch);
    }
    let session_stream = session.stream();
    // A copy between host and device runs on a stream of the device.
    let copy_device = if to == Device::CPU { from } else { to };
    let failed = |error| Error::data(format!("cannot move a batch from {from} to {to}"), error);
    if copy_device == session_stream.device() {
        return batch.move_to(session_stream, to).map_err(failed);
    }
    let stream = session.memory().default_stream(copy_device).map_err(failed)?;
    batch.move_to(&stream, to).map_err(failed)
}
