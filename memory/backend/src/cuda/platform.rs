//! All of CUDA that one backend has: its devices, started when they are first asked for, and what they share.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{Device, Error, Result, abi};

use super::context::Gpu;
use super::device::CudaDeviceBackend;
use super::driver::{
    Driver, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, POINTER_DEVICE_ORDINAL, POINTER_IS_MANAGED,
    POINTER_MEMORY_TYPE, POINTER_RANGE_SIZE, POINTER_RANGE_START, SUCCESS,
};
use super::event::CudaEvent;
use super::file::MappedMemory;
use super::missing::CudaMissing;
use super::pinned::{Deferred, PinnedMemory, Started};
use super::plain::PlainMemory;
use super::pool::DevicePool;
use super::probe::{CudaDevice, CudaPresence};
use super::reaper::{Job, Reaper};
use crate::device::{DeviceDescription, HostDevice, Place};
use crate::entry::Entry;
use crate::policies::Policies;
use crate::resource::{Pool, Published, Ranges, Resource};

/// Devices are numbered on from `first`: pinned host memory, then each GPU by its ordinal.
pub(crate) struct Platform {
    driver: Driver,
    presence: CudaPresence,
    descriptions: Vec<DeviceDescription>,
    backend: usize,
    first: usize,
    policies: Policies,
    pinned: Entry,
    pinned_ranges: Arc<Ranges>,
    started: Arc<Started>,
    reaper: Arc<Reaper>,
    gpus: Vec<OnceLock<Result<Gpus>>>,
}

/// A started device.
struct Gpus {
    entry: Entry,
    gpu: Arc<Gpu>,
    pool: Arc<DevicePool>,
}

impl Platform {
    pub(crate) fn start(backend: usize, first: usize, policies: &Policies) -> Result<Self, CudaMissing> {
        let (driver, presence) = super::probe::start()?;
        super::at_exit::arm();
        let (started, reaper) = (Arc::<Started>::default(), Arc::<Reaper>::default());
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
        let gpus = presence.devices.iter().map(|_| OnceLock::new()).collect();
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
            gpus,
        })
    }

    pub(crate) fn presence(&self) -> &CudaPresence {
        &self.presence
    }

    /// How many devices there are, pinned memory among them.
    pub(crate) fn len(&self) -> usize {
        1 + self.gpus.len()
    }

    /// The `i`-th, started if it was not.
    pub(crate) fn entry(&self, i: usize) -> Result<&Entry> {
        match i.checked_sub(1) {
            None => Ok(&self.pinned),
            Some(ordinal) => self.gpu(ordinal).map(|gpu| &gpu.entry),
        }
    }

    /// The `i`-th, if it has been started.
    pub(crate) fn started(&self, i: usize) -> Option<&Entry> {
        match i.checked_sub(1) {
            None => Some(&self.pinned),
            Some(ordinal) => self.gpus.get(ordinal)?.get()?.as_ref().ok().map(|gpu| &gpu.entry),
        }
    }

    /// Calls `then` once `events` have passed, and with `after_all` everything that is in flight on any device now. Nobody waits
    /// for the latter on the host, unless the driver cannot mark it.
    pub(crate) fn call_after(
        &self,
        mut events: Vec<Arc<CudaEvent>>,
        after_all: bool,
        then: Box<dyn FnOnce() + Send>,
    ) {
        let mut everything_on = Vec::new();
        for gpu in if after_all { self.started.all() } else { Vec::new() } {
            match CudaEvent::of_everything(self.backend, &gpu) {
                Ok(event) => events.push(event),
                Err(_) => everything_on.push(gpu),
            }
        }
        if events.is_empty() && everything_on.is_empty() {
            return then();
        }
        self.reaper.add(Job { events, everything_on, then });
    }

    /// Whether any device has been: before that there is no context to pin memory in.
    pub(crate) fn is_started(&self) -> bool {
        self.gpus.iter().any(|slot| matches!(slot.get(), Some(Ok(_))))
    }

    /// Which device the `i`-th is, started or not.
    pub(crate) fn name(&self, i: usize) -> Option<Device> {
        match i.checked_sub(1) {
            None => Some(HostDevice::PINNED),
            Some(ordinal) => self.presence.devices.get(ordinal).map(|device| device.device),
        }
    }

    /// What there is, started or not.
    pub(crate) fn describe(&self) -> &[DeviceDescription] {
        &self.descriptions
    }

    /// The index among all of the backend's devices.
    pub(crate) fn index_of(&self, device: Device) -> Option<usize> {
        if device.r#type == abi::DEVICE_CUDA_HOST {
            return Some(self.first);
        }
        let ordinal = usize::try_from(device.id).ok().filter(|ordinal| *ordinal < self.gpus.len())?;
        Some(self.first + 1 + ordinal)
    }

    fn gpu(&self, ordinal: usize) -> Result<&Gpus> {
        let slot = self.gpus.get(ordinal);
        let slot = slot.ok_or_else(|| Error::internal(format!("there is no CUDA device {ordinal}")))?;
        slot.get_or_init(|| self.open(ordinal)).as_ref().map_err(Error::clone)
    }

    fn open(&self, ordinal: usize) -> Result<Gpus> {
        let about = self.presence.devices.get(ordinal);
        let about = about.ok_or_else(|| Error::internal(format!("there is no CUDA device {ordinal}")))?;
        if !about.memory_pools {
            return Err(Error::unsupported(format!(
                "{} ({}) has no memory pools, which CUDA devices are worked on with; use another device, or the cpu",
                about.device, about.name
            )));
        }
        let failed = |e: Error| e.context(format_args!("{} could not be started", about.device));
        let gpu =
            Gpu::open(self.driver, about.device, ordinal as i32, about.compute_capability).map_err(failed)?;
        let keep_bytes = self.policies.keep_on_device_bytes();
        let pool =
            DevicePool::new(gpu.clone(), self.backend, self.reaper.clone(), keep_bytes).map_err(failed)?;
        let pool = Arc::new(pool);
        let stream = {
            let _entered = gpu.enter()?;
            gpu.take_stream().map_err(failed)?
        };
        self.meet(&gpu, &pool);
        self.started.add(&gpu);
        let memory = self.policies.apply(Box::new(pool.clone()));
        let plain = PlainMemory::new(gpu.clone(), self.backend, self.reaper.clone());
        let shareable = self.policies.apply(Box::new(plain));
        let by_handle = MappedMemory::new(gpu.clone(), self.backend, self.reaper.clone());
        let exportable = self.policies.apply(Box::new(by_handle));
        let device = CudaDeviceBackend::new(
            describe(about),
            gpu.clone(),
            memory,
            shareable,
            exportable,
            self.pinned_ranges.clone(),
            self.backend,
        );
        let entry = Entry::new(self.backend, self.first + 1 + ordinal, Box::new(device), stream);
        Ok(Gpus { entry, gpu, pool })
    }

    /// Lets a new device and those that were started before reach each other's memory, where the hardware can. Where it
    /// cannot, the driver takes copies between them through the host.
    fn meet(&self, gpu: &Arc<Gpu>, pool: &DevicePool) {
        let others = self.gpus.iter().filter_map(|slot| slot.get()?.as_ref().ok());
        for other in others {
            let can = |a: &Gpu, b: &Gpu| {
                let mut can = 0;
                // SAFETY: a pointer to a local.
                let code = unsafe { (self.driver.device_can_access_peer)(&mut can, a.ordinal, b.ordinal) };
                code == SUCCESS && can != 0
            };
            // A refusal costs speed and nothing else.
            if can(gpu, &other.gpu) {
                drop(other.pool.share_with(gpu));
            }
            if can(&other.gpu, gpu) {
                drop(pool.share_with(&other.gpu));
            }
        }
    }

    /// An event behind its handle.
    ///
    /// # Safety
    /// As [`CudaEvent::of`].
    pub(crate) unsafe fn event(&self, handle: *mut abi::Event) -> Result<Arc<CudaEvent>> {
        // SAFETY: by this function's own contract.
        unsafe { CudaEvent::of(self.backend, handle) }
    }

    /// The same with the handle's own count.
    ///
    /// # Safety
    /// As [`CudaEvent::of_last`].
    pub(crate) unsafe fn last_of_event(&self, handle: *mut abi::Event) -> Result<Arc<CudaEvent>> {
        // SAFETY: by this function's own contract.
        unsafe { CudaEvent::of_last(self.backend, handle) }
    }

    /// Blocks until a stranger's event has passed.
    ///
    /// # Safety
    /// `sync_event` points at an event's handle.
    pub(crate) unsafe fn synchronize_raw(&self, sync_event: *mut c_void) -> Result<()> {
        // SAFETY: by this function's own contract.
        let event = unsafe { *sync_event.cast::<*mut c_void>() };
        let _relaxed = self.driver.relaxed();
        // SAFETY: an event by the caller's word.
        self.driver.check("cuEventSynchronize", unsafe { (self.driver.event_synchronize)(event) })
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// A device by its ordinal, started if it was not.
    pub(super) fn started_gpu(&self, ordinal: usize) -> Result<&Arc<Gpu>> {
        self.gpu(ordinal).map(|gpu| &gpu.gpu)
    }

    pub(crate) fn reaper(&self) -> &Arc<Reaper> {
        &self.reaper
    }

    /// Blocks until all that waits for a device to be done with it has been done, but for what waits for the end of a graph
    /// capture.
    pub(crate) fn settle(&self) {
        self.reaper.flush();
        self.gpus.iter().filter_map(|slot| slot.get()?.as_ref().ok()).for_each(|gpu| gpu.pool.settle());
    }

    /// Bytes of a device that are taken and not this backend's; `None` where it was not started.
    pub(crate) fn foreign_bytes(&self, ordinal: usize) -> Result<Option<u64>> {
        let gpu = self.gpus.get(ordinal).and_then(|slot| slot.get()?.as_ref().ok());
        gpu.map(|gpu| gpu.pool.foreign_bytes()).transpose()
    }

    /// Where an address lies, if the driver knows it.
    pub(crate) fn find(&self, address: *const c_void) -> Result<Option<Place>> {
        let (mut kind, mut ordinal, mut managed) = (0u32, -1i32, 0u32);
        let (mut base, mut bytes) = (0u64, 0usize);
        let mut which = [
            POINTER_MEMORY_TYPE,
            POINTER_DEVICE_ORDINAL,
            POINTER_IS_MANAGED,
            POINTER_RANGE_START,
            POINTER_RANGE_SIZE,
        ];
        let mut places: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut managed).cast(),
            (&raw mut base).cast(),
            (&raw mut bytes).cast(),
        ];
        // SAFETY: as many attributes as places, each a local of the attribute's type.
        let code = unsafe {
            (self.driver.pointer_get_attributes)(5, which.as_mut_ptr(), places.as_mut_ptr(), address as u64)
        };
        self.driver.check("cuPointerGetAttributes", code)?;
        let id = i64::from(ordinal.max(0));
        let device = match kind as i32 {
            _ if managed != 0 => Device { id, r#type: abi::DEVICE_CUDA_MANAGED, reserved: 0 },
            MEMORY_TYPE_DEVICE => Device::cuda(id),
            MEMORY_TYPE_HOST => HostDevice::PINNED,
            _ => return Ok(None),
        };
        Ok(self.index_of(device).map(|index| Place { index, device, base: base as usize, bytes }))
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
