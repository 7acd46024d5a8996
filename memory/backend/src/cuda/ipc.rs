//! CUDA IPC: device memory of one process in another one, with the event after which it may be read.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result};

use super::context::{Entered, Gpu};
use super::description::{IpcDescription, this_process};
use super::driver::{
    Driver, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS, IpcHandle,
    MEMORY_TYPE_DEVICE, Ordinal, POINTER_DEVICE_ORDINAL, POINTER_IPC_CAPABLE, POINTER_MEMORY_TYPE,
    POINTER_RANGE_SIZE, POINTER_RANGE_START, RawEvent, SUCCESS,
};
use super::platform::Platform;
use super::reaper::{Job, Reaper};

/// Memory that other processes may open. It holds the event that they wait for, and not the memory: keep both until the
/// others have let go of what they opened, for to the driver anything else is undefined.
pub struct IpcExport {
    description: IpcDescription,
    gpu: Arc<Gpu>,
    event: RawEvent,
}

// SAFETY: the driver takes events on every thread.
unsafe impl Send for IpcExport {}
// SAFETY: as above, and nothing in here changes.
unsafe impl Sync for IpcExport {}

impl IpcExport {
    /// What the other process is told.
    pub fn description(&self) -> &IpcDescription {
        &self.description
    }
}

impl Drop for IpcExport {
    fn drop(&mut self) {
        destroy_event(&self.gpu, self.event);
    }
}

/// Another process's memory. Dropping it closes it, once everything has run that is in flight on its device; nobody waits
/// for that. The exporter must not have freed it by then.
pub struct IpcMemory {
    gpu: Arc<Gpu>,
    reaper: Arc<Reaper>,
    /// Of the allocation, as it was opened.
    base: u64,
    offset: u64,
    bytes: u64,
    /// Boxed, since `sync_event` points at it.
    event: Box<RawEvent>,
}

// SAFETY: the driver takes events on every thread.
unsafe impl Send for IpcMemory {}
// SAFETY: as above, and nothing in here changes.
unsafe impl Sync for IpcMemory {}

impl IpcMemory {
    /// Where it lies, by this process's count.
    pub fn device(&self) -> Device {
        self.gpu.device
    }

    /// Where the range begins, on the device.
    pub fn address(&self) -> u64 {
        self.base + self.offset
    }

    /// How long the range is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A pointer to the handle of the event after which it may be read: what an `ArrowDeviceArray.sync_event` is. It lives
    /// as long as this.
    pub fn sync_event(&self) -> *mut c_void {
        (&raw const *self.event).cast_mut().cast()
    }
}

impl Drop for IpcMemory {
    fn drop(&mut self) {
        let (gpu, base, event) = (self.gpu.clone(), self.base, Handle(*self.event));
        let then = Box::new(move || {
            let event = event;
            if let Ok(entered) = gpu.enter() {
                close(&gpu, &entered, base);
            }
            destroy_event(&gpu, event.0);
        });
        // Others may have seen it, and nobody tells when they are done.
        self.reaper.add(Job { events: Vec::new(), everything_on: vec![self.gpu.clone()], then });
    }
}

struct Handle(RawEvent);

// SAFETY: the driver takes events on every thread.
unsafe impl Send for Handle {}

fn destroy_event(gpu: &Gpu, event: RawEvent) {
    if let Ok(_entered) = gpu.enter() {
        // SAFETY: this is its one owner; what waits for it holds on to the moment.
        unsafe { (gpu.driver.event_destroy)(event) };
    }
}

/// Undoes one opening.
fn close(gpu: &Gpu, _entered: &Entered, base: u64) {
    let _relaxed = gpu.relaxed();
    // SAFETY: opened here, and nothing on the device uses it any more.
    unsafe { (gpu.driver.ipc_close_mem_handle)(base) };
}

/// What the driver knows about an address.
#[derive(Default)]
struct Place {
    kind: u32,
    ordinal: i32,
    ipc_capable: u32,
    base: u64,
    bytes: usize,
}

impl Place {
    fn of(driver: &Driver, address: u64) -> Result<Self> {
        let mut place = Self { ordinal: -1, ..Self::default() };
        let mut which = [
            POINTER_MEMORY_TYPE,
            POINTER_DEVICE_ORDINAL,
            POINTER_IPC_CAPABLE,
            POINTER_RANGE_START,
            POINTER_RANGE_SIZE,
        ];
        let mut places: [*mut c_void; 5] = [
            (&raw mut place.kind).cast(),
            (&raw mut place.ordinal).cast(),
            (&raw mut place.ipc_capable).cast(),
            (&raw mut place.base).cast(),
            (&raw mut place.bytes).cast(),
        ];
        // SAFETY: as many attributes as places, each of the attribute's type.
        let code =
            unsafe { (driver.pointer_get_attributes)(5, which.as_mut_ptr(), places.as_mut_ptr(), address) };
        driver.check("cuPointerGetAttributes", code)?;
        Ok(place)
    }

    /// Whether `bytes` bytes from `address` on lie in the allocation.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.checked_sub(self.base);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        end.is_some_and(|end| end <= self.bytes as u64)
    }
}

impl Platform {
    /// # Safety
    /// As [`crate::Backend::export_ipc`].
    pub(crate) unsafe fn export_ipc(
        &self,
        address: u64,
        bytes: u64,
        sync_event: *mut c_void,
    ) -> Result<IpcExport> {
        let driver = self.driver();
        let place = Place::of(driver, address)?;
        let ordinal = usize::try_from(place.ordinal).ok();
        let Some(ordinal) = ordinal.filter(|_| place.kind == MEMORY_TYPE_DEVICE as u32) else {
            return Err(Error::invalid_argument(format!(
                "address {address:#x} is no memory of a CUDA device; only such is shared by CUDA IPC"
            )));
        };
        let gpu = self.started_gpu(ordinal)?;
        let device = gpu.device;
        if !place.holds(address, bytes) {
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes at {address:#x} lie outside their allocation on {device}, which is {} bytes from {:#x} on",
                place.bytes, place.base
            )));
        }
        if place.ipc_capable == 0 {
            return Err(Error::unsupported(format!(
                "the memory at {address:#x} on {device} comes from a pool, or is managed, and CUDA IPC cannot share it; copy \
                 it into a buffer that was allocated to be shared (allocate_shareable; new_buffer in Python), and export that"
            )));
        }
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let mut memory = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: a pointer to a local; the context is current.
        let code = unsafe { (driver.ipc_get_mem_handle)(&mut memory, place.base) };
        let asked =
            |e: Error| e.context(format_args!("memory of {device} cannot be shared with other processes"));
        driver.check("cuIpcGetMemHandle", code).map_err(asked)?;
        let uuid = uuid_of(driver, gpu.ordinal)?;
        let mut event: RawEvent = std::ptr::null_mut();
        let flags = EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        // SAFETY: a pointer to a local; the context is current.
        driver.check("cuEventCreate", unsafe { (driver.event_create)(&mut event, flags) }).map_err(asked)?;
        // From here on it is destroyed whatever happens.
        let mut export = IpcExport {
            description: IpcDescription {
                process: this_process(),
                gpu: uuid,
                offset: address - place.base,
                bytes,
                memory: memory.0,
                event: [0; IPC_HANDLE_BYTES],
            },
            gpu: gpu.clone(),
            event,
        };
        // On a stream of its own, so that no other has to wait for what is exported.
        let stream = gpu.take_stream()?;
        let record = || {
            if !sync_event.is_null() {
                // SAFETY: a pointer to an event's handle by this function's own contract.
                gpu.wait(stream, unsafe { *sync_event.cast::<RawEvent>() })?;
            }
            // SAFETY: both are of this context.
            driver.check("cuEventRecord", unsafe { (driver.event_record)(event, stream) })
        };
        let recorded = record();
        gpu.give_stream(stream);
        recorded.map_err(asked)?;
        let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: a pointer to a local, and a live event.
        let code = unsafe { (driver.ipc_get_event_handle)(&mut handle, event) };
        driver.check("cuIpcGetEventHandle", code).map_err(asked)?;
        export.description.event = handle.0;
        Ok(export)
    }

    pub(crate) fn open_ipc(&self, description: &IpcDescription) -> Result<IpcMemory> {
        description.check_other_process()?;
        let driver = self.driver();
        let gpu = self.gpu_of_uuid(&description.gpu)?;
        let entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let failed =
            |e: Error| e.context(format_args!("another process's memory on {} cannot be opened", gpu.device));
        let mut base = 0;
        // SAFETY: a pointer to a local, and a handle by value, which the driver checks; the context is current.
        let code = unsafe {
            (driver.ipc_open_mem_handle)(&mut base, IpcHandle(description.memory), IPC_LAZY_PEER_ACCESS)
        };
        let alive =
            |e: Error| Error::new(e.code(), format!("{e}; its exporter must be there, with its buffer"));
        driver.check("cuIpcOpenMemHandle", code).map_err(alive).map_err(failed)?;
        let finish = || {
            let IpcDescription { offset, bytes, .. } = *description;
            let place = Place::of(driver, base)?;
            if !base.checked_add(offset).is_some_and(|address| place.holds(address, bytes)) {
                return Err(Error::bad_data(format!(
                    "{bytes} bytes from byte {offset} on lie outside the allocation that was opened, which has {}",
                    place.bytes
                )));
            }
            let mut event: RawEvent = std::ptr::null_mut();
            // SAFETY: as above.
            let code = unsafe { (driver.ipc_open_event_handle)(&mut event, IpcHandle(description.event)) };
            driver.check("cuIpcOpenEventHandle", code)?;
            let reaper = self.reaper().clone();
            Ok(IpcMemory { gpu: gpu.clone(), reaper, base, offset, bytes, event: Box::new(event) })
        };
        finish().map_err(failed).inspect_err(|_| close(gpu, &entered, base))
    }

    fn gpu_of_uuid(&self, uuid: &[u8; 16]) -> Result<&Arc<Gpu>> {
        let driver = self.driver();
        for ordinal in 0..self.presence().devices.len() {
            let mut handle: Ordinal = 0;
            // SAFETY: a pointer to a local.
            let code = unsafe { (driver.device_get)(&mut handle, ordinal as i32) };
            if code == SUCCESS && uuid_of(driver, handle)? == *uuid {
                return self.started_gpu(ordinal);
            }
        }
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Err(Error::device(format!(
            "the memory lies on a GPU (UUID {name}) that this process does not see; check CUDA_VISIBLE_DEVICES"
        )))
    }
}

fn uuid_of(driver: &Driver, handle: Ordinal) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    // SAFETY: a pointer to a local of 16 bytes.
    driver.check("cuDeviceGetUuid", unsafe { (driver.device_get_uuid)(&mut uuid, handle) })?;
    Ok(uuid)
}
