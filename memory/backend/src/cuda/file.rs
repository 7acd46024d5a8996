//! Device memory that goes to other processes as an open file.
//!
//! The kernel's own object stands behind the file, so that a driver which is handed a wrong one says so, and the memory is there as
//! long as any process has it open or mapped: nobody has to tell anybody when to let go of it, and no process's end takes it from
//! another one. (Of CUDA IPC's handles the driver promises neither.)

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::answer::Answer;
use super::context::{Entered, Gpu};
use super::driver::{
    ACCESS_READ_WRITE, ALLOCATION_PINNED, GRANULARITY_LEAST, HANDLE_FILE, LOCATION_DEVICE, MemAccess,
    MemHandle, MemLocation, MemProps,
};
use super::event::CudaEvent;
use super::platform::Platform;
use super::reaper::{Job, Reaper};
use crate::device::Stream;
use crate::resource::{Refusal, Region, Request, Resource, Uses};

/// Memory by handle: made, mapped, and unmapped after its last use.
pub(crate) struct MappedMemory {
    gpu: Arc<Gpu>,
    backend: usize,
    reaper: Arc<Reaper>,
    /// Bytes that a mapping is a multiple of, once one has been made.
    granularity: OnceLock<usize>,
}

impl MappedMemory {
    pub(crate) fn new(gpu: Arc<Gpu>, backend: usize, reaper: Arc<Reaper>) -> Self {
        Self { gpu, backend, reaper, granularity: OnceLock::new() }
    }

    /// How much is mapped for so much.
    fn whole(&self, bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(*self.granularity.get()?)
    }

    fn make(&self, bytes: usize) -> Result<NonNull<u8>, Refusal> {
        let Gpu { driver, ordinal, .. } = &*self.gpu;
        let entered = self.gpu.try_enter().map_err(Refusal::Device)?;
        let _relaxed = self.gpu.relaxed();
        let mut props = props_of(*ordinal);
        let mut granularity = 0;
        let (mut memory, least) = (0, GRANULARITY_LEAST);
        // SAFETY: pointers to locals.
        let code = unsafe { (driver.mem_get_granularity)(&mut granularity, &raw const props, least) };
        driver.accept("cuMemGetAllocationGranularity", code).map_err(Refusal::Device)?;
        self.granularity.get_or_init(|| granularity.max(1));
        let bytes = self.whole(bytes).ok_or(Refusal::TooLarge)?;
        // SAFETY: as above.
        let code = unsafe { (driver.mem_create)(&mut memory, bytes, &raw mut props, 0) };
        driver.accept("cuMemCreate", code).map_err(Refusal::Device)?;
        let base = map(&self.gpu, &entered, memory, bytes).map_err(Refusal::Device)?;
        NonNull::new(base as usize as *mut u8).ok_or(Refusal::TooLarge)
    }
}

impl Resource for MappedMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, Refusal> {
        let address = self.make(request.bytes)?;
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, uses: Uses<'_>, _lent: bool) {
        // SAFETY: `free`'s caller hands over live events of this backend.
        let events = uses.iter().filter_map(|event| unsafe { CudaEvent::of(self.backend, *event) }.ok());
        let base = region.reachable.as_ptr() as u64;
        // It was as much when it was made.
        let bytes = self.whole(region.request.bytes).unwrap_or(0);
        unmap_later(&self.gpu, &self.reaper, (base, bytes), events.collect());
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

/// Another process's memory, mapped here until this goes and everything has run that is in flight on its device.
pub struct FileMemory {
    gpu: Arc<Gpu>,
    reaper: Arc<Reaper>,
    base: u64,
    bytes: usize,
}

impl FileMemory {
    /// Where it begins, on its device.
    pub fn address(&self) -> u64 {
        self.base
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        unmap_later(&self.gpu, &self.reaper, (self.base, self.bytes), Vec::new());
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

/// All of the memory at an address, for its device. Its handle goes: what is mapped stays.
fn map(gpu: &Gpu, _entered: &Entered, memory: MemHandle, bytes: usize) -> Result<u64, Answer> {
    let driver = &gpu.driver;
    let mut base = 0;
    let mapped = || {
        // SAFETY: a pointer to a local; the context is current.
        let code = unsafe { (driver.mem_address_reserve)(&mut base, bytes, 0, 0, 0) };
        driver.accept("cuMemAddressReserve", code)?;
        // SAFETY: the range is reserved, and nothing lies in it.
        let code = unsafe { (driver.mem_map)(base, bytes, 0, memory, 0) };
        driver.accept("cuMemMap", code).inspect_err(|_| {
            // SAFETY: reserved above, and nothing is mapped there.
            unsafe { (driver.mem_address_free)(base, bytes) };
        })?;
        let location = MemLocation { r#type: LOCATION_DEVICE, id: gpu.ordinal };
        let access = MemAccess { location, flags: ACCESS_READ_WRITE };
        // SAFETY: mapped above; one description.
        let code = unsafe { (driver.mem_set_access)(base, bytes, &access, 1) };
        driver.accept("cuMemSetAccess", code).inspect_err(|_| unmap(gpu, base, bytes))
    };
    let mapped = { mapped }();
    // SAFETY: the caller's handle, which is given up here.
    unsafe { (driver.mem_release)(memory) };
    mapped.map(|()| base)
}

/// The context is current, and nothing on the device uses the range any more.
fn unmap(gpu: &Gpu, base: u64, bytes: usize) {
    // SAFETY: mapped by `map` with these numbers.
    unsafe {
        (gpu.driver.mem_unmap)(base, bytes);
        (gpu.driver.mem_address_free)(base, bytes);
    }
}

fn unmap_later(gpu: &Arc<Gpu>, reaper: &Reaper, range: (u64, usize), events: Vec<Arc<CudaEvent>>) {
    let of = gpu.clone();
    let then = Box::new(move || {
        if let Ok(_entered) = of.enter() {
            let _relaxed = of.relaxed();
            unmap(&of, range.0, range.1);
        }
    });
    reaper.add(Job { events, everything_on: vec![gpu.clone()], then });
}

impl Platform {
    pub(crate) fn export_file(&self, address: u64) -> Result<(OwnedFd, u64)> {
        let place = self.find(address as usize as *const c_void)?;
        let place = place.filter(|place| place.device.r#type == abi::DEVICE_CUDA);
        let place = place.ok_or_else(|| {
            Error::invalid_argument(format!("address {address:#x} is no memory of a CUDA device"))
        })?;
        let gpu = self.started_gpu(usize::try_from(place.device.id).unwrap_or(usize::MAX))?;
        let failed =
            |e: Error| e.context(format_args!("memory of {} goes to no other process as a file", gpu.device));
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let driver = &gpu.driver;
        let (mut memory, mut file) = (0, -1);
        // SAFETY: a pointer to a local, and an address that the driver looks up.
        let code = unsafe { (driver.mem_retain_handle)(&mut memory, place.base as u64) };
        driver.check("cuMemRetainAllocationHandle", code).map_err(failed)?;
        // SAFETY: a pointer to a local, and a handle that was just got.
        let code = unsafe { (driver.mem_export)(&mut file, memory, HANDLE_FILE, 0) };
        // SAFETY: got above, and given up once.
        unsafe { (driver.mem_release)(memory) };
        driver.check("cuMemExportToShareableHandle", code).map_err(failed)?;
        // SAFETY: opened for the caller.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        // SAFETY: numbers. It fails for no open file.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok((file, place.bytes as u64))
    }

    pub(crate) fn open_file(&self, device: Device, file: OwnedFd, bytes: u64) -> Result<FileMemory> {
        let failed =
            |e: Error| e.context(format_args!("another process's memory on {device} cannot be opened"));
        let ordinal = usize::try_from(device.id).ok().filter(|_| device.r#type == abi::DEVICE_CUDA);
        let ordinal =
            ordinal.ok_or_else(|| Error::invalid_argument("expected a CUDA device")).map_err(failed)?;
        let gpu = self.started_gpu(ordinal)?;
        let size = usize::try_from(bytes).map_err(|_| Error::invalid_argument("too many bytes"));
        let size = size.map_err(failed)?;
        let entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let driver = &gpu.driver;
        let mut memory = 0;
        let number = file.as_raw_fd() as usize as *mut c_void;
        // SAFETY: a pointer to a local, and an open file, which the driver looks at.
        let code = unsafe { (driver.mem_import)(&mut memory, number, HANDLE_FILE) };
        driver.check("cuMemImportFromShareableHandle", code).map_err(failed)?;
        let mut props = props_of(-1);
        // SAFETY: a pointer to a local, and a handle that was just got.
        let code = unsafe { (driver.mem_get_properties)(&mut props, memory) };
        let known = driver.check("cuMemGetAllocationPropertiesFromHandle", code);
        if known.is_err() || props.location.id != gpu.ordinal {
            // SAFETY: got above, and given up once.
            unsafe { (driver.mem_release)(memory) };
            let elsewhere = format!("it lies on the driver's device {}", props.location.id);
            return Err(failed(known.err().unwrap_or_else(|| Error::bad_data(elsewhere))));
        }
        let base = map(gpu, &entered, memory, size).map_err(|answer| failed(answer.into()))?;
        Ok(FileMemory { gpu: gpu.clone(), reaper: self.reaper().clone(), base, bytes: size })
    }
}
