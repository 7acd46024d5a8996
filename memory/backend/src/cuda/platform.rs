//! Starts the CUDA devices of a backend at their first use, and owns the state that they share.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::allocator::CallerMemory;
use super::context::Gpu;
use super::cuda_missing::CudaMissing;
use super::device::CudaDeviceBackend;
use super::driver::{
    Driver, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, POINTER_DEVICE_ORDINAL, POINTER_IS_MANAGED,
    POINTER_MEMORY_TYPE, POINTER_RANGE_SIZE, POINTER_RANGE_START, SUCCESS,
};
use super::event::CudaEvent;
use super::file::{ExportableMemory, Mappings};
use super::pinned::{Deferred, PinnedMemory, StartedGpus};
use super::pool::DevicePool;
use super::probe::{CudaDevice, CudaPresence};
use super::reaper::{Job, Reaper};
use super::shareable::ShareableMemory;
use crate::device::{DeviceDescription, HostDevice, Location};
use crate::entry::Entry;
use crate::policies::Policies;
use crate::resource::{Pool, Published, Ranges, Resource};

/// The CUDA devices of a backend. In the backend's list of devices, pinned host memory has the
/// index `first`, and the GPUs follow in the order of their ordinals.
pub(crate) struct Platform {
    driver: Driver,
    presence: CudaPresence,
    descriptions: Vec<DeviceDescription>,
    backend: usize,
    first: usize,
    policies: Policies,
    pinned: Entry,
    pinned_ranges: Arc<Ranges>,
    started: Arc<StartedGpus>,
    reaper: Arc<Reaper>,
    devices: Vec<OnceLock<Result<StartedDevice>>>,
}

/// A started device.
struct StartedDevice {
    entry: Entry,
    gpu: Arc<Gpu>,
    pool: Arc<DevicePool>,
    /// The mappings of memory that trusted processes share.
    shared: Arc<Mappings>,
}

/// The part of the device's memory that may be kept in mappings of shared memory.
const KEPT_MAPPINGS_PART: u64 = 16;

impl Platform {
    pub(crate) fn start(backend: usize, first: usize, policies: &Policies) -> Result<Self, CudaMissing> {
        let (driver, presence) = super::probe::start()?;
        super::at_exit::install_handler();
        let (started, reaper) = (Arc::<StartedGpus>::default(), Arc::<Reaper>::default());
        let ranges = Arc::<Ranges>::default();
        let memory = PinnedMemory::new(started.clone());
        let cap_bytes = policies.pinned_pool_bytes();
        let memory: Box<dyn Resource> = match cap_bytes {
            0 => Box::new(Deferred::new(memory, backend, reaper.clone(), started.clone())),
            _ => {
                let pool = Pool::new(memory, cap_bytes, policies.budget());
                Box::new(Deferred::new(pool, backend, reaper.clone(), started.clone()))
            }
        };
        let memory = policies.apply(Box::new(Published::new(memory, ranges.clone())));
        let pinned = Entry::new(backend, first, Box::new(HostDevice::pinned(memory)), std::ptr::null_mut());
        let devices = presence.devices.iter().map(|_| OnceLock::new()).collect();
        let descriptions = presence.devices.iter().map(describe).collect();
        let policies = policies.clone();
        Ok(Self {
            driver,
            presence,
            descriptions,
            backend,
            first,
            policies,
            pinned,
            pinned_ranges: ranges,
            started,
            reaper,
            devices,
        })
    }

    pub(crate) fn presence(&self) -> &CudaPresence {
        &self.presence
    }

    /// Number of devices, including pinned memory.
    pub(crate) fn len(&self) -> usize {
        1 + self.devices.len()
    }

    /// Returns device `i`, where 0 is pinned memory. Starts the device if necessary.
    pub(crate) fn entry(&self, i: usize) -> Result<&Entry> {
        match i.checked_sub(1) {
            None => Ok(&self.pinned),
            Some(ordinal) => self.started_device(ordinal).map(|device| &device.entry),
        }
    }

    /// Returns device `i`, where 0 is pinned memory, if the device has been started.
    pub(crate) fn started(&self, i: usize) -> Option<&Entry> {
        match i.checked_sub(1) {
            None => Some(&self.pinned),
            Some(ordinal) => self.devices.get(ordinal)?.get()?.as_ref().ok().map(|device| &device.entry),
        }
    }

    /// Calls `then` once `events` have passed. If `after_all` is set, all work that is now in
    /// flight on any device must also have run. If the driver cannot record an event after that
    /// work, the reaper's thread blocks until the work has run.
    pub(crate) fn call_after(
        &self,
        mut events: Vec<Arc<CudaEvent>>,
        after_all: bool,
        then: Box<dyn FnOnce() + Send>,
    ) {
        let mut everything_on = Vec::new();
        for gpu in if after_all { self.started.all() } else { Vec::new() } {
            match CudaEvent::record_everything(self.backend, &gpu) {
                Ok(event) => events.push(event),
                Err(_) => everything_on.push(gpu),
            }
        }
        if events.is_empty() && everything_on.is_empty() {
            return then();
        }
        self.reaper.add(Job { events, everything_on, then });
    }

    /// Whether any GPU has been started. Memory can be pinned only in the context of a started GPU.
    pub(crate) fn is_started(&self) -> bool {
        self.devices.iter().any(|slot| matches!(slot.get(), Some(Ok(_))))
    }

    /// The id of device `i`, where 0 is pinned memory. The device need not have been started.
    pub(crate) fn device(&self, i: usize) -> Option<Device> {
        match i.checked_sub(1) {
            None => Some(HostDevice::PINNED),
            Some(ordinal) => self.presence.devices.get(ordinal).map(|device| device.device),
        }
    }

    /// Descriptions of all GPUs, including those that have not been started.
    pub(crate) fn describe(&self) -> &[DeviceDescription] {
        &self.descriptions
    }

    /// The index of `device` in the backend's list of devices.
    pub(crate) fn index_of(&self, device: Device) -> Option<usize> {
        if device.r#type == abi::DEVICE_CUDA_HOST {
            return Some(self.first);
        }
        let ordinal = usize::try_from(device.id).ok().filter(|ordinal| *ordinal < self.devices.len())?;
        Some(self.first + 1 + ordinal)
    }

    fn started_device(&self, ordinal: usize) -> Result<&StartedDevice> {
        let slot = self.devices.get(ordinal);
        let slot = slot.ok_or_else(|| Error::internal(format!("CUDA device {ordinal} does not exist")))?;
        slot.get_or_init(|| self.open(ordinal)).as_ref().map_err(Error::clone)
    }

    fn open(&self, ordinal: usize) -> Result<StartedDevice> {
        let properties = self.presence.devices.get(ordinal);
        let properties =
            properties.ok_or_else(|| Error::internal(format!("CUDA device {ordinal} does not exist")))?;
        if !properties.memory_pools {
            return Err(Error::unsupported(format!(
                "{} ({}) has no memory pools, which Crossdock needs; use another device, or the cpu",
                properties.device, properties.name
            )));
        }
        let failed = |e: Error| e.context(format_args!("{} could not be started", properties.device));
        let gpu = Gpu::open(self.driver, properties.device, ordinal as i32, properties.compute_capability)
            .map_err(failed)?;
        let keep_bytes = self.policies.device_pool_bytes();
        let pool =
            DevicePool::new(gpu.clone(), self.backend, self.reaper.clone(), keep_bytes).map_err(failed)?;
        let pool = Arc::new(pool);
        let stream = {
            let _entered = gpu.enter()?;
            gpu.take_stream().map_err(failed)?
        };
        self.enable_peer_access(&gpu, &pool);
        self.started.add(&gpu);
        let memory: Box<dyn Resource> = match self.policies.allocator(properties.device) {
            Some(allocator) => {
                Box::new(CallerMemory::new(gpu.clone(), allocator, self.backend, self.reaper.clone()))
            }
            None => Box::new(pool.clone()),
        };
        let memory = self.policies.apply(memory);
        let plain = ShareableMemory::new(gpu.clone(), self.backend, self.reaper.clone());
        let shareable = self.policies.apply(Box::new(plain));
        let by_handle = |max_kept_bytes: u64| {
            let mappings = Mappings::new(max_kept_bytes as usize);
            let (gpu, reaper) = (gpu.clone(), self.reaper.clone());
            let memory = ExportableMemory::new(gpu, self.backend, reaper, mappings.clone());
            (self.policies.apply(Box::new(memory)), mappings)
        };
        let (exportable, _) = by_handle(0);
        let max_kept_bytes = properties.memory_bytes.min(keep_bytes) / KEPT_MAPPINGS_PART;
        let (shared, shared_mappings) = by_handle(max_kept_bytes);
        let device = CudaDeviceBackend::new(
            describe(properties),
            gpu.clone(),
            memory,
            shareable,
            exportable,
            shared,
            self.pinned_ranges.clone(),
            self.backend,
        );
        let entry = Entry::new(self.backend, self.first + 1 + ordinal, Box::new(device), stream);
        Ok(StartedDevice { entry, gpu, pool, shared: shared_mappings })
    }

    /// Whether work on `device` can access memory of the device `of`. Starts both devices.
    pub(crate) fn can_access(&self, device: Device, of: Device) -> Result<bool> {
        let ordinal = |device: Device| usize::try_from(device.id).unwrap_or(usize::MAX);
        let (gpu, other) = (self.started_gpu(ordinal(device))?, self.started_gpu(ordinal(of))?);
        Ok(device == of || self.is_peer(gpu, other))
    }

    fn is_peer(&self, gpu: &Gpu, other: &Gpu) -> bool {
        let mut can = 0;
        // SAFETY: the pointer points to a local variable.
        let code = unsafe { (self.driver.device_can_access_peer)(&mut can, gpu.ordinal, other.ordinal) };
        code == SUCCESS && can != 0
    }

    /// The mappings of memory that trusted processes share.
    pub(super) fn mappings_of(&self, gpu: &Gpu) -> Option<&Mappings> {
        let device = self.devices.get(usize::try_from(gpu.device.id).ok()?)?.get()?;
        device.as_ref().ok().map(|device| &*device.shared)
    }

    /// Enables access between a newly started GPU and the GPUs that were started earlier, if the
    /// hardware supports it. Otherwise the driver copies between the GPUs through the host.
    fn enable_peer_access(&self, gpu: &Arc<Gpu>, pool: &DevicePool) {
        let others = self.devices.iter().filter_map(|slot| slot.get()?.as_ref().ok());
        for other in others {
            // Errors are ignored, because without the access copies are only slower.
            if self.is_peer(gpu, &other.gpu) {
                drop(other.pool.share_with(gpu));
            }
            if self.is_peer(&other.gpu, gpu) {
                drop(pool.share_with(&other.gpu));
            }
        }
    }

    /// Returns the event of a handle. The handle keeps its own reference to the event.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`].
    pub(crate) unsafe fn event(&self, handle: *mut abi::Event) -> Result<Arc<CudaEvent>> {
        // SAFETY: `handle` is NULL or live by this function's contract.
        unsafe { CudaEvent::from_handle(self.backend, handle) }
    }

    /// Returns the event of a handle, and takes ownership of the handle's reference to it.
    ///
    /// # Safety
    /// `handle` is NULL or a live handle from [`CudaEvent::into_handle`], and is not used any more.
    pub(crate) unsafe fn take_event_handle(&self, handle: *mut abi::Event) -> Result<Arc<CudaEvent>> {
        // SAFETY: by this function's contract `handle` is NULL or live, and is not used any more.
        unsafe { CudaEvent::take_handle(self.backend, handle) }
    }

    /// Blocks until an external event has passed.
    ///
    /// # Safety
    /// `sync_event` points to the handle of a live event.
    pub(crate) unsafe fn synchronize_raw(&self, sync_event: *mut c_void) -> Result<()> {
        // SAFETY: `sync_event` points to the handle of an event by this function's contract.
        let event = unsafe { *sync_event.cast::<*mut c_void>() };
        let _relaxed = self.driver.relaxed();
        // SAFETY: `event` is live by this function's contract.
        self.driver.check("cuEventSynchronize", unsafe { (self.driver.event_synchronize)(event) })
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The GPU with this ordinal. Starts it if necessary.
    pub(super) fn started_gpu(&self, ordinal: usize) -> Result<&Arc<Gpu>> {
        self.started_device(ordinal).map(|device| &device.gpu)
    }

    pub(crate) fn reaper(&self) -> &Arc<Reaper> {
        &self.reaper
    }

    /// Blocks until all pending releases and callbacks have run, except those that wait for the end
    /// of a graph capture.
    pub(crate) fn settle(&self) {
        self.reaper.flush();
        self.devices
            .iter()
            .filter_map(|slot| slot.get()?.as_ref().ok())
            .for_each(|device| device.pool.settle());
    }

    /// Bytes of a device's memory that are in use outside this backend's pool; `None` if the device
    /// has not been started.
    pub(crate) fn external_bytes(&self, ordinal: usize) -> Result<Option<u64>> {
        let device = self.devices.get(ordinal).and_then(|slot| slot.get()?.as_ref().ok());
        device.map(|device| device.pool.external_bytes()).transpose()
    }

    /// The device and the allocation that contain an address; `None` if the driver reports neither.
    pub(crate) fn locate(&self, address: *const c_void) -> Result<Option<Location>> {
        let (mut kind, mut ordinal, mut managed) = (0u32, -1i32, 0u32);
        let (mut base, mut bytes) = (0u64, 0usize);
        let mut which = [
            POINTER_MEMORY_TYPE,
            POINTER_DEVICE_ORDINAL,
            POINTER_IS_MANAGED,
            POINTER_RANGE_START,
            POINTER_RANGE_SIZE,
        ];
        let mut values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut managed).cast(),
            (&raw mut base).cast(),
            (&raw mut bytes).cast(),
        ];
        // SAFETY: both lists have five entries, and every local variable has the type of its
        // attribute.
        let code = unsafe {
            (self.driver.pointer_get_attributes)(5, which.as_mut_ptr(), values.as_mut_ptr(), address as u64)
        };
        self.driver.check("cuPointerGetAttributes", code)?;
        let id = i64::from(ordinal.max(0));
        let device = match kind as i32 {
            _ if managed != 0 => Device { id, r#type: abi::DEVICE_CUDA_MANAGED, reserved: 0 },
            MEMORY_TYPE_DEVICE => Device::cuda(id),
            MEMORY_TYPE_HOST => HostDevice::PINNED,
            _ => return Ok(None),
        };
        Ok(self.index_of(device).map(|index| Location { index, device, base: base as usize, bytes }))
    }
}

fn describe(device: &CudaDevice) -> DeviceDescription {
    DeviceDescription {
        device: device.device,
        name: device.device.to_string(),
        description: device.name.clone(),
        memory_bytes: device.memory_bytes,
        host_accessible: false,
    }
}
