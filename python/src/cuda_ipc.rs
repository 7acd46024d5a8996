//! Buffers for other processes, and those of others.

use std::sync::{Arc, PoisonError};

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_memory_backend::IpcDescription;
use crossdock_plugin_api::Result;
use pyo3::prelude::*;

use crate::cuda_allocation::Allocation;
use crate::cuda_context::Place;
use crate::cuda_memory::DeviceMemory;
use crate::errors::{OrRaise, usage};
use crate::process::detach;

/// What another process is told of a range. Who opens it waits for what was done here before.
pub fn export(allocation: &Allocation, offset: usize, bytes: usize) -> Result<Vec<u8>> {
    allocation.show()?;
    let range = allocation.buffer.slice(offset, bytes)?;
    let ready = allocation.place.stream.record()?;
    // SAFETY: the event is `ready`'s. The export stays with the allocation, which its buffers keep; that these are kept until
    // the others are done is the caller's to see to, as `export_for_ipc` says.
    let export =
        unsafe { allocation.place.backend().export_ipc(range.address(), bytes as u64, ready.sync_event()) }?;
    let description = export.description().to_bytes();
    allocation.exports.lock().unwrap_or_else(PoisonError::into_inner).push(export);
    Ok(description)
}

/// How many bytes a description is of.
#[pyfunction]
pub fn cuda_ipc_size(description: &[u8]) -> PyResult<u64> {
    Ok(IpcDescription::from_bytes(description).or_raise()?.range_bytes())
}

/// Opens what another process exported.
pub fn open(py: Python<'_>, place: &Arc<Place>, description: &[u8]) -> PyResult<DeviceMemory> {
    let description = IpcDescription::from_bytes(description).or_raise()?;
    let memory = detach(py, || place.backend().open_ipc(&description)).or_raise()?;
    let (device, address, bytes) = (memory.device(), memory.address(), memory.bytes());
    if device != place.device() {
        return Err(usage(format!(
            "the memory lies on {device}, and the context is of {}: open it in Context({})",
            place.device(),
            device.id
        )));
    }
    let event = memory.sync_event();
    let owner = ForeignOwner::new(memory);
    // SAFETY: the event is the memory's own, which `owner` has.
    let ready = unsafe { Ready::from_sync_event(event, &owner) };
    place.stream.wait(&ready).or_raise()?;
    // SAFETY: the range that was opened, which `owner` closes. It is used on the stream that has just been made to wait.
    let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(bytes), Ready::Now) };
    Ok(DeviceMemory::new(Allocation::shown(place.clone(), buffer, true)))
}
