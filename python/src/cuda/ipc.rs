//! Exports device memory to other processes, and opens memory that they exported.

use std::sync::{Arc, PoisonError};

use crossdock_memory::{Buffer, ForeignOwner, Ready};
use crossdock_memory_backend::IpcDescription;
use crossdock_plugin_api::Result;
use pyo3::prelude::*;

use crate::cuda::allocation::Allocation;
use crate::cuda::context::DeviceState;
use crate::cuda::memory::DeviceMemory;
use crate::runtime::errors::{OrRaise, usage};
use crate::runtime::process::detach;

/// Exports a range of an allocation, and returns the description that another process opens. The
/// opener waits for the work submitted to the session's stream so far.
pub fn export(allocation: &Allocation, offset: usize, bytes: usize) -> Result<Vec<u8>> {
    allocation.mark_exported()?;
    let range = allocation.buffer.slice(offset, bytes)?;
    let ready = allocation.state.stream.record()?;
    // SAFETY: `ready` keeps the event alive. The allocation keeps the export and the memory. The
    // documentation of `export_for_ipc` requires the caller to keep the buffer until all processes
    // that opened it have closed it.
    let export =
        unsafe { allocation.state.backend().export_ipc(range.address(), bytes as u64, ready.sync_event()) }?;
    let description = export.description().to_bytes();
    allocation.ipc_exports.lock().unwrap_or_else(PoisonError::into_inner).push(export);
    Ok(description)
}

/// Returns the number of bytes in the range of a description.
#[pyfunction]
pub fn cuda_ipc_size(description: &[u8]) -> PyResult<u64> {
    Ok(IpcDescription::from_bytes(description).or_raise()?.range_bytes())
}

/// Opens memory that another process exported.
///
/// # Errors
/// UsageError if it is on another device.
pub fn open(py: Python<'_>, state: &Arc<DeviceState>, description: &[u8]) -> PyResult<DeviceMemory> {
    let description = IpcDescription::from_bytes(description).or_raise()?;
    let memory = detach(py, || state.backend().open_ipc(&description)).or_raise()?;
    let (device, address, bytes) = (memory.device(), memory.address(), memory.bytes());
    if device != state.device() {
        return Err(usage(format!(
            "the exported memory is on {device}, expected {}: open it in Context({})",
            state.device(),
            device.id
        )));
    }
    let event = memory.sync_event();
    let owner = ForeignOwner::new(memory);
    // SAFETY: `owner` keeps the memory and its event alive.
    let ready = unsafe { Ready::from_sync_event(event, &owner) };
    state.stream.wait(&ready).or_raise()?;
    // SAFETY: `open_ipc` mapped the range, and `owner` keeps it mapped. All work on it is submitted
    // to the session's stream, which waits for the exporter's event.
    let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(bytes), Ready::Now) };
    Ok(DeviceMemory::new(Allocation::external(state.clone(), buffer, true)))
}
