//! Exports device memory to other processes as an open file.
//!
//! The operating system's kernel links the file to the memory, so the driver returns an error for a
//! file that is not exported memory. The memory exists as long as any process has the file open or
//! the memory mapped. Processes therefore need not coordinate its release, and the end of one
//! process does not invalidate memory that another process uses. The driver guarantees neither
//! property for CUDA IPC handles.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::{Entered, Gpu};
use super::driver::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, GRANULARITY_MINIMUM, HANDLE_FILE, LOCATION_DEVICE, MemAccess,
    MemHandle, MemLocation, MemProps,
};
use super::driver_error::DriverError;
use super::event::CudaEvent;
use super::platform::Platform;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{AllocError, Region, Request, Resource, Uses};

/// Allocates memory with `cuMemCreate`, maps it, and unmaps it after its last use.
pub(crate) struct ExportableMemory {
    gpu: Arc<Gpu>,
    backend: usize,
    reaper: Arc<Reaper>,
    mappings: Arc<Mappings>,
    /// Granularity of mappings in bytes, known after the first allocation.
    granularity: OnceLock<usize>,
}

/// The mappings that a device keeps for reuse.
pub(crate) struct Mappings {
    /// The exported file of each mapping that may be kept, by its address. `None` before the first
    /// export, for which the driver takes 0.6 ms.
    files: Mutex<HashMap<u64, Option<OwnedFd>>>,
    /// Freed mappings for the next allocations of the same size: address and size in bytes.
    kept: Mutex<Vec<(u64, usize)>>,
    /// The maximum sum of the sizes of the kept mappings in bytes.
    max_kept_bytes: usize,
}

impl Mappings {
    pub(crate) fn new(max_kept_bytes: usize) -> Arc<Self> {
        Arc::new(Self { files: Mutex::default(), kept: Mutex::default(), max_kept_bytes })
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(u64, usize)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Option<OwnedFd>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) -> Option<u64> {
        let mut kept = self.kept();
        let i = kept.iter().rposition(|(_, size)| *size == bytes)?;
        Some(kept.swap_remove(i).0)
    }

    /// Keeps a mapping that nothing uses any more. Unmaps the oldest ones if they are too large.
    /// The context must be current.
    fn keep(&self, gpu: &Gpu, base: u64, bytes: usize) {
        let mut kept = self.kept();
        kept.push((base, bytes));
        let mut total: usize = kept.iter().map(|(_, bytes)| bytes).sum();
        let mut n_unmapped = 0;
        for (_, bytes) in &*kept {
            if total <= self.max_kept_bytes {
                break;
            }
            total -= bytes;
            n_unmapped += 1;
        }
        let unmapped: Vec<(u64, usize)> = kept.drain(..n_unmapped).collect();
        drop(kept);
        unmapped.into_iter().for_each(|(base, bytes)| self.unmap(gpu, base, bytes));
    }

    /// Unmaps memory, and closes its file. The context must be current.
    fn unmap(&self, gpu: &Gpu, base: u64, bytes: usize) {
        drop(self.files().remove(&base));
        unmap(gpu, base, bytes);
    }

    fn unmap_kept(&self, gpu: &Gpu) -> usize {
        let kept = std::mem::take(&mut *self.kept());
        kept.iter().for_each(|(base, bytes)| self.unmap(gpu, *base, *bytes));
        kept.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl ExportableMemory {
    /// If `mappings` keeps some, freed memory is reused. Then other processes must not have it
    /// mapped when it is freed.
    pub(crate) fn new(gpu: Arc<Gpu>, backend: usize, reaper: Arc<Reaper>, mappings: Arc<Mappings>) -> Self {
        Self { gpu, backend, reaper, mappings, granularity: OnceLock::new() }
    }

    /// Size in bytes of the mapping for a block of `bytes` bytes. `None` if the size overflows, or
    /// before the first allocation.
    fn mapped_bytes(&self, bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(*self.granularity.get()?)
    }

    fn create(&self, bytes: usize) -> Result<NonNull<u8>, AllocError> {
        let Gpu { driver, ordinal, .. } = &*self.gpu;
        let entered = self.gpu.try_enter().map_err(AllocError::Device)?;
        let _relaxed = self.gpu.relaxed();
        let mut props = props_of(*ordinal);
        let mut memory = 0;
        if self.granularity.get().is_none() {
            let mut granularity = 0;
            // SAFETY: the pointers point to local variables.
            let code = unsafe {
                (driver.mem_get_granularity)(&mut granularity, &raw const props, GRANULARITY_MINIMUM)
            };
            driver.check_code("cuMemGetAllocationGranularity", code).map_err(AllocError::Device)?;
            self.granularity.get_or_init(|| granularity.max(1));
        }
        let bytes = self.mapped_bytes(bytes).ok_or(AllocError::TooLarge)?;
        if let Some(base) = self.mappings.take(bytes) {
            return NonNull::new(base as usize as *mut u8).ok_or(AllocError::TooLarge);
        }
        // SAFETY: the pointers point to local variables; the context is current.
        let code = unsafe { (driver.mem_create)(&mut memory, bytes, &raw mut props, 0) };
        driver.check_code("cuMemCreate", code).map_err(AllocError::Device)?;
        let base = map(&self.gpu, &entered, memory, bytes).map_err(AllocError::Device)?;
        if self.mappings.max_kept_bytes > 0 {
            self.mappings.files().insert(base, None);
        }
        NonNull::new(base as usize as *mut u8).ok_or(AllocError::TooLarge)
    }
}

impl Resource for ExportableMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let address = self.create(request.bytes)?;
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, uses: Uses<'_>, _exported: bool) {
        // SAFETY: by the contract of `free`, the events in `uses` are live.
        let events =
            uses.iter().filter_map(|event| unsafe { CudaEvent::from_handle(self.backend, *event) }.ok());
        let base = region.reachable.as_ptr() as u64;
        // `create` mapped this number of bytes.
        let bytes = self.mapped_bytes(region.request.bytes).unwrap_or(0);
        let (gpu, mappings) = (self.gpu.clone(), self.mappings.clone());
        let keeps = mappings.max_kept_bytes > 0;
        let then = Box::new(move || {
            if let Ok(_entered) = gpu.enter() {
                let _relaxed = gpu.relaxed();
                if keeps { mappings.keep(&gpu, base, bytes) } else { mappings.unmap(&gpu, base, bytes) }
            }
        });
        // An unmapping waits for all work on the device.
        let everything_on = if keeps { Vec::new() } else { vec![self.gpu.clone()] };
        self.reaper.add(Job { events: events.collect(), everything_on, then });
    }

    fn trim(&self, _bytes: usize) -> usize {
        let Ok(_entered) = self.gpu.enter() else { return 0 };
        let _relaxed = self.gpu.relaxed();
        self.mappings.unmap_kept(&self.gpu)
    }

    fn cached_bytes(&self) -> usize {
        self.mappings.kept().iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Drop for ExportableMemory {
    fn drop(&mut self) {
        self.trim(usize::MAX);
    }
}

/// Mapped memory of another process. After the value has been dropped, the memory is unmapped once
/// all work in flight on its device has run.
pub struct FileMemory {
    gpu: Arc<Gpu>,
    reaper: Arc<Reaper>,
    base: u64,
    bytes: usize,
    /// Dropped after the memory has been unmapped.
    lease: Option<Box<dyn Any + Send + Sync>>,
}

impl FileMemory {
    /// The address of the first byte on the device.
    pub fn address(&self) -> u64 {
        self.base
    }

    /// Drops `lease` after the memory has been unmapped.
    pub fn with_lease(mut self, lease: impl Any + Send + Sync) -> Self {
        self.lease = Some(Box::new(lease));
        self
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        let (gpu, base, bytes, lease) = (self.gpu.clone(), self.base, self.bytes, self.lease.take());
        let then = Box::new(move || {
            let _lease = lease;
            if let Ok(_entered) = gpu.enter() {
                let _relaxed = gpu.relaxed();
                unmap(&gpu, base, bytes);
            }
        });
        self.reaper.add(Job { events: Vec::new(), everything_on: vec![self.gpu.clone()], then });
    }
}

fn props_of(ordinal: i32) -> MemProps {
    MemProps {
        alloc_type: ALLOCATION_PINNED,
        handle_types: HANDLE_FILE,
        location: MemLocation { r#type: LOCATION_DEVICE, id: ordinal },
        win32_handle_meta_data: std::ptr::null_mut(),
        flags: [0; 8],
    }
}

/// Maps all memory of the handle `memory` for its device. Always releases the handle, because the
/// mapping stays valid without the handle.
fn map(gpu: &Gpu, _entered: &Entered, memory: MemHandle, bytes: usize) -> Result<u64, DriverError> {
    let driver = &gpu.driver;
    let mut base = 0;
    let map_handle = || {
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (driver.mem_address_reserve)(&mut base, bytes, 0, 0, 0) };
        driver.check_code("cuMemAddressReserve", code)?;
        // SAFETY: the range was reserved above, and nothing is mapped in it.
        let code = unsafe { (driver.mem_map)(base, bytes, 0, memory, 0) };
        driver.check_code("cuMemMap", code).inspect_err(|_| {
            // SAFETY: the range was reserved above, and nothing is mapped in it.
            unsafe { (driver.mem_address_free)(base, bytes) };
        })?;
        let location = MemLocation { r#type: LOCATION_DEVICE, id: gpu.ordinal };
        let access = MemAccess { location, flags: ACCESS_READ_WRITE };
        // SAFETY: the range was mapped above; `access` is one description, as the count states.
        let code = unsafe { (driver.mem_set_access)(base, bytes, &access, 1) };
        driver.check_code("cuMemSetAccess", code).inspect_err(|_| unmap(gpu, base, bytes))
    };
    let result = { map_handle }();
    // SAFETY: `map` takes ownership of the handle.
    unsafe { (driver.mem_release)(memory) };
    result.map(|()| base)
}

/// Unmaps a range that nothing on the device uses any more. The context must be current.
fn unmap(gpu: &Gpu, base: u64, bytes: usize) {
    // SAFETY: `map` reserved and mapped this range with the same address and size.
    unsafe {
        (gpu.driver.mem_unmap)(base, bytes);
        (gpu.driver.mem_address_free)(base, bytes);
    }
}

impl Platform {
    pub(crate) fn export_file(&self, address: u64) -> Result<(OwnedFd, u64)> {
        let location = self.locate(address as usize as *const c_void)?;
        let location = location.filter(|location| location.device.r#type == abi::DEVICE_CUDA);
        let location = location.ok_or_else(|| {
            Error::invalid_argument(format!("address {address:#x} is no memory of a CUDA device"))
        })?;
        let gpu = self.started_gpu(usize::try_from(location.device.id).unwrap_or(usize::MAX))?;
        let failed =
            |e: Error| e.context(format_args!("memory of {} cannot be exported as a file", gpu.device));
        let mappings = self.mappings_of(gpu);
        let base = location.base as u64;
        let copy = |file: &OwnedFd| {
            let copied = file.try_clone();
            copied.map_err(|error| failed(Error::internal(format!("cannot copy a file: {error}"))))
        };
        let mut files = mappings.map(|mappings| mappings.files());
        let mut slot = files.as_mut().and_then(|files| files.get_mut(&base));
        if let Some(Some(file)) = &slot {
            return Ok((copy(file)?, location.bytes as u64));
        }
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let driver = &gpu.driver;
        let (mut memory, mut file) = (0, -1);
        // SAFETY: the pointer points to a local variable, and the driver checks the address.
        let code = unsafe { (driver.mem_retain_handle)(&mut memory, base) };
        driver.check("cuMemRetainAllocationHandle", code).map_err(failed)?;
        // SAFETY: the pointer points to a local variable; `memory` is the handle that the previous
        // call returned.
        let code = unsafe { (driver.mem_export)(&mut file, memory, HANDLE_FILE, 0) };
        // SAFETY: the call above returned the handle; this is its only release.
        unsafe { (driver.mem_release)(memory) };
        driver.check("cuMemExportToShareableHandle", code).map_err(failed)?;
        // SAFETY: the driver opened the file descriptor for this call, which owns it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: with F_SETFD, `fcntl` takes only numbers. It does not fail for an open file
        // descriptor.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        if let Some(slot) = &mut slot {
            **slot = Some(copy(&file)?);
        }
        Ok((file, location.bytes as u64))
    }

    pub(crate) fn open_file(&self, device: Device, file: OwnedFd, bytes: u64) -> Result<FileMemory> {
        let failed =
            |e: Error| e.context(format_args!("memory of another process on {device} cannot be opened"));
        let ordinal = usize::try_from(device.id).ok().filter(|_| device.r#type == abi::DEVICE_CUDA);
        let ordinal =
            ordinal.ok_or_else(|| Error::invalid_argument("expected a CUDA device")).map_err(failed)?;
        let gpu = self.started_gpu(ordinal)?;
        let size = usize::try_from(bytes).map_err(|_| Error::invalid_argument("the size exceeds usize"));
        let size = size.map_err(failed)?;
        let entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let driver = &gpu.driver;
        let mut memory = 0;
        let number = file.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the pointer points to a local variable; the file is open, and the driver checks
        // it.
        let code = unsafe { (driver.mem_import)(&mut memory, number, HANDLE_FILE) };
        driver.check("cuMemImportFromShareableHandle", code).map_err(failed)?;
        let mut props = props_of(-1);
        // SAFETY: the pointer points to a local variable; `memory` is the handle that the previous
        // call returned.
        let code = unsafe { (driver.mem_get_properties)(&mut props, memory) };
        let result = driver.check("cuMemGetAllocationPropertiesFromHandle", code);
        if result.is_err() || props.location.id != gpu.ordinal {
            // SAFETY: the call above returned the handle; this is its only release.
            unsafe { (driver.mem_release)(memory) };
            let other_device = format!("the memory is on the driver's device {}", props.location.id);
            return Err(failed(result.err().unwrap_or_else(|| Error::bad_data(other_device))));
        }
        let base = map(gpu, &entered, memory, size).map_err(|error| failed(error.into()))?;
        let reaper = self.reaper().clone();
        Ok(FileMemory { gpu: gpu.clone(), reaper, base, bytes: size, lease: None })
    }
}
