//! Shares device memory with other processes through CUDA IPC, together with an event after which
//! the memory may be read.

use std::ffi::c_void;
use std::sync::Arc;

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::{Entered, Gpu};
use super::description::{IpcDescription, this_process};
use super::driver::{
    Driver, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS, IpcHandle,
    MEMORY_TYPE_DEVICE, Ordinal, POINTER_DEVICE_ORDINAL, POINTER_IPC_CAPABLE, POINTER_MEMORY_TYPE,
    POINTER_RANGE_SIZE, POINTER_RANGE_START, RawEvent, SUCCESS,
};
use super::platform::Platform;
use super::reaper::{Job, Reaper};

/// An export of device memory to other processes. It owns the event that these processes wait for,
/// but not the memory. Keep the export and the memory until every process that opened the memory
/// has closed it, because the driver does not define what happens otherwise.
pub struct IpcExport {
    description: IpcDescription,
    gpu: Arc<Gpu>,
    event: RawEvent,
}

// SAFETY: the driver accepts events on any thread.
unsafe impl Send for IpcExport {}
// SAFETY: the driver accepts events on several threads at the same time, and the fields do not
// change.
unsafe impl Sync for IpcExport {}

impl IpcExport {
    /// The description for the other process.
    pub fn description(&self) -> &IpcDescription {
        &self.description
    }
}

impl Drop for IpcExport {
    fn drop(&mut self) {
        destroy_event(&self.gpu, self.event);
    }
}

/// Opened memory of another process. Dropping the value does not block: the memory is closed later,
/// once all work in flight on its device has run. The exporter must not free the memory before it
/// is closed.
pub struct IpcMemory {
    gpu: Arc<Gpu>,
    reaper: Arc<Reaper>,
    /// Address of the opened allocation.
    base: u64,
    offset: u64,
    bytes: u64,
    /// Boxed, because the pointer that `sync_event` returns must stay valid if the value is moved.
    event: Box<RawEvent>,
}

// SAFETY: the driver accepts events on any thread.
unsafe impl Send for IpcMemory {}
// SAFETY: the driver accepts events on several threads at the same time, and the fields do not
// change.
unsafe impl Sync for IpcMemory {}

impl IpcMemory {
    /// The device, with its number in this process.
    pub fn device(&self) -> Device {
        self.gpu.device
    }

    /// The address of the range on the device.
    pub fn address(&self) -> u64 {
        self.base + self.offset
    }

    /// Length of the range in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A pointer to the handle of the event after which the range may be read, as in
    /// `ArrowDeviceArray.sync_event`. It is valid as long as `self`.
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
        // Waits for all work on the device, because other libraries may be using the memory and do
        // not report when they are done.
        self.reaper.add(Job { events: Vec::new(), everything_on: vec![self.gpu.clone()], then });
    }
}

struct Handle(RawEvent);

// SAFETY: the driver accepts events on any thread.
unsafe impl Send for Handle {}

fn destroy_event(gpu: &Gpu, event: RawEvent) {
    if let Ok(_entered) = gpu.enter() {
        // SAFETY: the caller owns the event and does not use it again. Waits that are already
        // enqueued refer to the work that the event recorded, not to the event.
        unsafe { (gpu.driver.event_destroy)(event) };
    }
}

/// Closes memory that `open_ipc` opened.
fn close(gpu: &Gpu, _entered: &Entered, base: u64) {
    let _relaxed = gpu.relaxed();
    // SAFETY: `open_ipc` opened the memory, and nothing on the device uses it any more.
    unsafe { (gpu.driver.ipc_close_mem_handle)(base) };
}

/// The attributes that the driver reports for an address.
#[derive(Default)]
struct PointerAttributes {
    kind: u32,
    ordinal: i32,
    ipc_capable: u32,
    base: u64,
    bytes: usize,
}

impl PointerAttributes {
    fn query(driver: &Driver, address: u64) -> Result<Self> {
        let mut attributes = Self { ordinal: -1, ..Self::default() };
        let mut which = [
            POINTER_MEMORY_TYPE,
            POINTER_DEVICE_ORDINAL,
            POINTER_IPC_CAPABLE,
            POINTER_RANGE_START,
            POINTER_RANGE_SIZE,
        ];
        let mut values: [*mut c_void; 5] = [
            (&raw mut attributes.kind).cast(),
            (&raw mut attributes.ordinal).cast(),
            (&raw mut attributes.ipc_capable).cast(),
            (&raw mut attributes.base).cast(),
            (&raw mut attributes.bytes).cast(),
        ];
        // SAFETY: both lists have five entries, and every field has the type of its attribute.
        let code =
            unsafe { (driver.pointer_get_attributes)(5, which.as_mut_ptr(), values.as_mut_ptr(), address) };
        driver.check("cuPointerGetAttributes", code)?;
        Ok(attributes)
    }

    /// Whether the range `address..address + bytes` is in the allocation.
    fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.checked_sub(self.base);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        end.is_some_and(|end| end <= self.bytes as u64)
    }
}

impl Platform {
    /// # Safety
    /// The requirements of [`crate::Backend::export_ipc`].
    pub(crate) unsafe fn export_ipc(
        &self,
        address: u64,
        bytes: u64,
        sync_event: *mut c_void,
    ) -> Result<IpcExport> {
        let driver = self.driver();
        let (attributes, gpu) = self.find_exportable(address, bytes)?;
        let device = gpu.device;
        let _entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let mut memory = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: the pointer points to a local variable; the context is current.
        let code = unsafe { (driver.ipc_get_mem_handle)(&mut memory, attributes.base) };
        let failed =
            |e: Error| e.context(format_args!("memory of {device} cannot be shared with other processes"));
        driver.check("cuIpcGetMemHandle", code).map_err(failed)?;
        let uuid = uuid_of(driver, gpu.ordinal)?;
        let mut event: RawEvent = std::ptr::null_mut();
        let flags = EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        // SAFETY: the pointer points to a local variable; the context is current.
        driver.check("cuEventCreate", unsafe { (driver.event_create)(&mut event, flags) }).map_err(failed)?;
        // From here on, `export` destroys the event if an error occurs.
        let mut export = IpcExport {
            description: IpcDescription {
                process: this_process(),
                gpu: uuid,
                offset: address - attributes.base,
                bytes,
                memory: memory.0,
                event: [0; IPC_HANDLE_BYTES],
            },
            gpu: gpu.clone(),
            event,
        };
        // SAFETY: by this function's contract `sync_event` is NULL or points to an event's handle.
        unsafe { record_after(gpu, event, sync_event) }.map_err(failed)?;
        let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: the pointer points to a local variable, and `event` is live.
        let code = unsafe { (driver.ipc_get_event_handle)(&mut handle, event) };
        driver.check("cuIpcGetEventHandle", code).map_err(failed)?;
        export.description.event = handle.0;
        Ok(export)
    }

    /// Checks that the range can be exported. Returns the attributes of its address, and its GPU.
    fn find_exportable(&self, address: u64, bytes: u64) -> Result<(PointerAttributes, &Arc<Gpu>)> {
        let attributes = PointerAttributes::query(self.driver(), address)?;
        let ordinal = usize::try_from(attributes.ordinal).ok();
        let Some(ordinal) = ordinal.filter(|_| attributes.kind == MEMORY_TYPE_DEVICE as u32) else {
            return Err(Error::invalid_argument(format!(
                "address {address:#x} is no memory of a CUDA device; CUDA IPC can share only such memory"
            )));
        };
        let gpu = self.started_gpu(ordinal)?;
        let device = gpu.device;
        if !attributes.contains(address, bytes) {
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes at {address:#x} lie outside their allocation on {device}, which has {} bytes at {:#x}",
                attributes.bytes, attributes.base
            )));
        }
        if attributes.ipc_capable == 0 {
            return Err(Error::unsupported(format!(
                "the memory at {address:#x} on {device} comes from a pool, or is managed, and CUDA IPC cannot share it; copy \
                 it into a buffer that was allocated to be shared (allocate_shareable; new_buffer in Python), and export that"
            )));
        }
        Ok((attributes, gpu))
    }

    pub(crate) fn open_ipc(&self, description: &IpcDescription) -> Result<IpcMemory> {
        description.check_other_process()?;
        let driver = self.driver();
        let gpu = self.gpu_of_uuid(&description.gpu)?;
        let entered = gpu.enter()?;
        let _relaxed = gpu.relaxed();
        let failed = |e: Error| {
            e.context(format_args!("memory of another process on {} cannot be opened", gpu.device))
        };
        let mut base = 0;
        // SAFETY: the pointer points to a local variable, and the driver checks the handle, which
        // is passed by value; the context is current.
        let code = unsafe {
            (driver.ipc_open_mem_handle)(&mut base, IpcHandle(description.memory), IPC_LAZY_PEER_ACCESS)
        };
        let with_advice = |e: Error| {
            Error::new(e.code(), format!("{e}; the exporter must be running and keep the buffer"))
                .with_position_of(&e)
        };
        driver.check("cuIpcOpenMemHandle", code).map_err(with_advice).map_err(failed)?;
        let open_event = || {
            let IpcDescription { offset, bytes, .. } = *description;
            let attributes = PointerAttributes::query(driver, base)?;
            if !base.checked_add(offset).is_some_and(|address| attributes.contains(address, bytes)) {
                return Err(Error::bad_data(format!(
                    "{bytes} bytes at offset {offset} lie outside the opened allocation, which has {} bytes",
                    attributes.bytes
                )));
            }
            let mut event: RawEvent = std::ptr::null_mut();
            // SAFETY: the pointer points to a local variable, and the driver checks the handle,
            // which is passed by value; the context is current.
            let code = unsafe { (driver.ipc_open_event_handle)(&mut event, IpcHandle(description.event)) };
            driver.check("cuIpcOpenEventHandle", code)?;
            let reaper = self.reaper().clone();
            Ok(IpcMemory { gpu: gpu.clone(), reaper, base, offset, bytes, event: Box::new(event) })
        };
        open_event().map_err(failed).inspect_err(|_| close(gpu, &entered, base))
    }

    pub(crate) fn uuid(&self, device: Device) -> Result<[u8; 16]> {
        let ordinal = usize::try_from(device.id).ok().filter(|_| device.r#type == abi::DEVICE_CUDA);
        let ordinal = ordinal
            .ok_or_else(|| Error::invalid_argument(format!("got {device}, expected a CUDA device")))?;
        uuid_of(self.driver(), self.started_gpu(ordinal)?.ordinal)
    }

    pub(crate) fn device_of_uuid(&self, uuid: &[u8; 16]) -> Result<Device> {
        self.gpu_of_uuid(uuid).map(|gpu| gpu.device)
    }

    fn gpu_of_uuid(&self, uuid: &[u8; 16]) -> Result<&Arc<Gpu>> {
        let driver = self.driver();
        for ordinal in 0..self.presence().devices.len() {
            let mut handle: Ordinal = 0;
            // SAFETY: the pointer points to a local variable.
            let code = unsafe { (driver.device_get)(&mut handle, ordinal as i32) };
            if code == SUCCESS && uuid_of(driver, handle)? == *uuid {
                return self.started_gpu(ordinal);
            }
        }
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Err(Error::device(format!(
            "the memory is on a GPU (UUID {name}) that this process does not see; check CUDA_VISIBLE_DEVICES"
        )))
    }
}

/// Records `event` after the event at `sync_event`. Uses a separate stream, so that the wait delays
/// no other stream. The context must be current.
///
/// # Safety
/// `sync_event` is NULL or points to the handle of a live event.
unsafe fn record_after(gpu: &Gpu, event: RawEvent, sync_event: *mut c_void) -> Result<()> {
    let stream = gpu.take_stream()?;
    let record = || {
        if !sync_event.is_null() {
            // SAFETY: by this function's contract `sync_event` points to an event's handle.
            gpu.wait(stream, unsafe { *sync_event.cast::<RawEvent>() })?;
        }
        // SAFETY: the event and the stream belong to this context.
        gpu.driver.check("cuEventRecord", unsafe { (gpu.driver.event_record)(event, stream) })
    };
    let result = record();
    gpu.return_stream(stream);
    result
}

fn uuid_of(driver: &Driver, handle: Ordinal) -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    // SAFETY: the pointer points to a local variable of 16 bytes.
    driver.check("cuDeviceGetUuid", unsafe { (driver.device_get_uuid)(&mut uuid, handle) })?;
    Ok(uuid)
}
