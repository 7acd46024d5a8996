//! Moves batches between devices.

use crossdock_arrays::DeviceBatch;
use crossdock_memory::Stream;
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

/// How a batch gets to the session's device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// By one copy on a stream of the session's device; see [`move_batch`].
    TargetStream,
    /// By one copy on a stream of the batch's device.
    SourceStream,
    /// By two copies, through host memory.
    Host,
}

/// Moves the batch to the session's device. `source` is a stream of the batch's device.
///
/// # Errors
/// The errors of [`move_batch`].
pub(crate) fn move_batch_by(
    session: &Session,
    batch: DeviceBatch,
    route: Route,
    source: &Stream,
) -> Result<DeviceBatch> {
    let (from, to) = (batch.device(), session.device());
    match route {
        Route::TargetStream => move_batch(session, batch, to),
        Route::SourceStream => batch
            .move_to(source, to)
            .map_err(|error| Error::data(format!("cannot move a batch from {from} to {to}"), error)),
        Route::Host => move_batch(session, move_batch(session, batch, Device::CPU)?, to),
    }
}
