//! Memory that processes on one machine exchange.

use std::os::fd::OwnedFd;

use crossdock_plugin_api::{Device, Error, Result};

use crate::backend::Backend;
use crate::cuda::{FileMemory, IpcDescription, IpcExport, IpcMemory};
use crate::resource::SharedHostMemory;

impl Backend {
    /// Exports `bytes` bytes at `address` to other processes on this machine. The memory was
    /// allocated by [`Account::allocate_shareable`], or by another library with `cuMemAlloc`. A
    /// process that opens the memory waits for the event at `sync_event`, and can access the whole
    /// allocation. If `sync_event` is NULL, the memory is ready.
    ///
    /// # Errors
    /// If the memory cannot be exported, or if the driver does not support CUDA IPC. Memory of a
    /// pool cannot be exported; the error then gives advice.
    ///
    /// # Safety
    /// `sync_event` is NULL or points to the handle of a live event. The memory and the result are
    /// kept until every process that opened the memory has closed it.
    pub unsafe fn export_ipc(
        &self,
        address: u64,
        bytes: u64,
        sync_event: *mut std::ffi::c_void,
    ) -> Result<IpcExport> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        // SAFETY: `Platform::export_ipc` has the same contract as this function.
        unsafe { cuda.export_ipc(address, bytes, sync_event) }
    }

    /// Opens memory that another process exported. The result owns the mapping, and is the owner of
    /// the buffers in the mapping.
    ///
    /// # Errors
    /// If this process itself exported the memory, which the driver rejects; if the GPU of the
    /// memory is not visible to this process; if the exporting process has ended; or if the range
    /// is not in the allocation.
    pub fn open_ipc(&self, description: &IpcDescription) -> Result<IpcMemory> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.open_ipc(description)
    }

    /// Exports memory that [`Account::allocate_exportable`] or [`Account::allocate_shared`]
    /// allocated, as an open file for other processes. Returns the file and its number of bytes. No
    /// event is passed, so another process must not read the memory before all work on it has
    /// completed.
    ///
    /// # Errors
    /// If the memory cannot be exported as a file.
    pub fn export_file(&self, address: u64) -> Result<(OwnedFd, u64)> {
        if let Some(exported) = self.0.shared_files.export(address)? {
            return Ok(exported);
        }
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.export_file(address)
    }

    /// Opens memory on `device` that another process exported as `file` with `bytes` bytes. The
    /// device and the size that the other process states are trusted. The result owns the mapping,
    /// and is the owner of the buffers in the mapping.
    ///
    /// # Errors
    /// If the file is not exported memory, if its size is not `bytes`, or if its memory is on
    /// another device.
    pub fn open_file(&self, device: Device, file: OwnedFd, bytes: u64) -> Result<FileMemory> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.open_file(device, file, bytes)
    }

    /// Opens host memory that another process exported as `file`, for reading. `bytes` is at most
    /// the length of the file. The result owns the mapping, and is the owner of the buffers in it.
    /// The memory is not reused until the result has been dropped, and no copy of `file` is open.
    ///
    /// # Errors
    /// If the file is not a file in memory whose length is fixed, or if it is shorter.
    pub fn open_host_file(&self, file: &OwnedFd, bytes: u64) -> Result<SharedHostMemory> {
        SharedHostMemory::open(file, bytes)
    }

    /// The UUID of a CUDA device's GPU. It is the same in all processes, unlike the number of the
    /// device.
    ///
    /// # Errors
    /// If the device does not exist, or the driver returns an error.
    pub fn cuda_uuid(&self, device: Device) -> Result<[u8; 16]> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.uuid(device)
    }

    /// The CUDA device with a UUID.
    ///
    /// # Errors
    /// If this process does not see the GPU, or the driver returns an error.
    pub fn cuda_device_with_uuid(&self, uuid: &[u8; 16]) -> Result<Device> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.device_of_uuid(uuid)
    }

    /// Whether work on one CUDA device can access memory of another one.
    ///
    /// # Errors
    /// If a device does not exist or cannot be started.
    pub fn cuda_can_access(&self, device: Device, of: Device) -> Result<bool> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.can_access(device, of)
    }
}
