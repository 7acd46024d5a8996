//! Batches from one device to another.

use crossdock_arrays::DeviceBatch;
use crossdock_plugin_api::Device;

use crate::error::{Error, Result};
use crate::session::Session;

/// The batch on `device`: itself where it is there.
///
/// # Errors
/// [`Error::Data`] or [`Error::Device`], with both devices' names.
pub(crate) fn move_batch(session: &Session, batch: DeviceBatch, device: Device) -> Result<DeviceBatch> {
    let (from, to) = (batch.device(), device);
    if from == to {
        return Ok(batch);
    }
    let here = session.stream();
    // A copy runs where the accelerator is, on either side of it.
    let on = if to == Device::CPU { from } else { to };
    let failed = |error| Error::data(format!("cannot move a batch from {from} to {to}"), error);
    if on == here.device() {
        return batch.move_to(here, to).map_err(failed);
    }
    let stream = session.memory().default_stream(on).map_err(failed)?;
    batch.move_to(&stream, to).map_err(failed)
}
