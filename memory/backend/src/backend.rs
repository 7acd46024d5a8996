//! The backend: devices, budget and ledger of one host.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::flags::reject_reserved;
use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::account::Account;
use crate::cuda::{Allocator, CudaMissing, CudaPresence, Platform};
use crate::device::{Block, DeviceBackend, DeviceDescription, HostDevice, Location, Stream};
use crate::entry::Entry;
use crate::fault::{Faults, Operation};
use crate::foreign::ForeignMemory;
use crate::forks;
use crate::ledger::{AccountCounters, Leak, Ledger, LedgerSnapshot};
use crate::policies::Policies;
use crate::resource::{AliasedMemory, AllocError, HostMemory, Published, Ranges, SharedFiles};
use crate::trace::Trace;

/// Default of [`BackendBuilder::pool_bytes`].
const DEFAULT_POOL_BYTES: usize = 256 << 20;

/// The memory of one host. Clones refer to the same backend.
#[derive(Clone)]
pub struct Backend(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    /// The host devices, `cpu` first. Pinned memory and the CUDA devices have the indices after the
    /// host devices.
    devices: Vec<Entry>,
    /// The memory of `cpu` that is shared with other processes.
    pub(crate) shared_files: Arc<SharedFiles>,
    policies: Policies,
    /// Number of forks when the backend was built.
    forks: u32,
    ledger: Ledger,
    /// `Some` if there is a budget.
    foreign: Option<Arc<ForeignMemory>>,
    trace: Option<Arc<Trace>>,
    cuda: OnceLock<Result<Platform, CudaMissing>>,
}

/// A reference to a [`Backend`] that does not keep it alive.
pub struct WeakBackend(std::sync::Weak<Inner>);

impl WeakBackend {
    /// Returns the backend if it is still alive. Accounts and allocated blocks keep a backend
    /// alive.
    pub fn upgrade(&self) -> Option<Backend> {
        self.0.upgrade().map(Backend)
    }
}

/// The configuration of a [`Backend`].
#[derive(Clone, Default)]
pub struct BackendBuilder {
    limit_bytes: Option<usize>,
    pool_bytes: usize,
    faults: Option<Faults>,
    untouchable: bool,
    trace: Option<Arc<Trace>>,
    allocators: Vec<(Device, Arc<Allocator>)>,
}

impl Backend {
    /// Returns the default configuration: no limit, pools of 256 MiB for host memory, no faults, no
    /// test device.
    pub fn builder() -> BackendBuilder {
        BackendBuilder { pool_bytes: DEFAULT_POOL_BYTES, ..BackendBuilder::default() }
    }

    /// Opens an account. Each plugin instance has one, and the host itself has one. Allocations and
    /// copies are counted under `name`.
    pub fn account(&self, name: &str) -> Arc<Account> {
        Account::open(self.0.clone(), name)
    }

    /// Current allocations and copies, by account.
    pub fn ledger(&self) -> LedgerSnapshot {
        self.0.snapshot()
    }

    pub(crate) fn is_same(&self, other: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, other)
    }

    /// Lists everything that is still allocated. The entries are leaks if everything should have
    /// been freed by now.
    pub fn leaks(&self) -> Vec<Leak> {
        self.ledger().leaks()
    }

    /// Returns the devices, `cpu` first. CUDA devices are included once the backend has looked for
    /// the driver, in [`Backend::cuda`] or at the first use of a CUDA device.
    pub fn devices(&self) -> Vec<DeviceDescription> {
        let host = self.0.devices.iter().map(|entry| entry.backend.describe());
        host.chain(self.0.known_cuda().into_iter().flat_map(Platform::describe)).cloned().collect()
    }

    /// Returns the CUDA driver and its devices, or the reason why there are none. The first call
    /// looks for the driver and starts it, which may take long.
    pub fn cuda(&self) -> Result<&CudaPresence, &CudaMissing> {
        self.0.cuda().map(Platform::presence)
    }

    /// Whether an external stream is known to have run all its work, so that no other work needs to
    /// wait for it. Also returns `false` if the query would take longer than recording an event.
    ///
    /// # Safety
    /// `stream` is a live stream of the device, or any value if the device has no streams.
    pub unsafe fn is_idle(&self, device: Device, stream: *mut std::ffi::c_void) -> bool {
        let backend = self.0.index_of(device).and_then(|index| self.0.device(index));
        // SAFETY: `stream` is a live stream of the device by this function's contract.
        backend.is_ok_and(|device| unsafe { device.stream_is_idle(stream) })
    }

    /// Whether the driver reports that a stream of a device is under graph capture. The query has
    /// no side effects.
    ///
    /// # Safety
    /// `stream` is a live stream of the device, or any value if the device has no streams.
    pub unsafe fn is_capturing(&self, device: Device, stream: *mut std::ffi::c_void) -> bool {
        let backend = self.0.index_of(device).and_then(|index| self.0.device(index));
        // SAFETY: `stream` is a live stream of the device by this function's contract.
        backend.is_ok_and(|device| unsafe { device.raw_stream_is_capturing(stream) })
    }

    /// Returns the number of bytes of a CUDA device's memory that are in use outside this backend's
    /// pool. These bytes are allocations of other processes, and of other libraries in this
    /// process. GPU drivers count in units of 2 MiB. Returns `None` for other devices, and for
    /// devices that have not been started.
    ///
    /// # Errors
    /// If the driver returns an error.
    pub fn external_bytes(&self, device: Device) -> Result<Option<u64>> {
        let ordinal = usize::try_from(device.id).ok().filter(|_| device.r#type == abi::DEVICE_CUDA);
        match (self.0.known_cuda(), ordinal) {
            (Some(cuda), Some(ordinal)) => cuda.external_bytes(ordinal),
            _ => Ok(None),
        }
    }

    /// Frees the memory that the pools cache. Returns the number of bytes freed.
    pub fn trim(&self) -> usize {
        self.0.trim(usize::MAX)
    }

    /// Blocks until all pending releases and callbacks have run, except those that wait for the end
    /// of a graph capture.
    pub fn settle(&self) {
        if let Some(cuda) = self.0.known_cuda() {
            cuda.settle();
        }
    }

    /// Blocks like [`Backend::settle`]. Memory that is released after this call is leaked. Call
    /// this function before an environment ends in which external release callbacks run, such as an
    /// interpreter.
    pub fn settle_and_leak(&self) {
        if let Some(cuda) = self.0.known_cuda() {
            cuda.reaper().flush_and_leak();
            cuda.settle();
        }
    }

    /// A weak reference to the backend.
    pub fn downgrade(&self) -> WeakBackend {
        WeakBackend(Arc::downgrade(&self.0))
    }

    /// The trace, if calls are traced.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.0.trace.as_ref()
    }

    /// The budget in bytes, if there is one.
    pub fn limit_bytes(&self) -> Option<usize> {
        self.0.policies.limit_bytes()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.devices().into_iter().map(|device| device.name).collect();
        f.debug_struct("Backend").field("devices", &names).field("limit_bytes", &self.limit_bytes()).finish()
    }
}

impl BackendBuilder {
    /// Sets the budget: the maximum number of bytes that are allocated at the same time, summed
    /// over all devices. Bytes that the pools of host memory cache count as allocated. In addition,
    /// the pool of each CUDA device caches at most `limit_bytes` bytes.
    pub fn limit_bytes(mut self, limit_bytes: usize) -> Self {
        self.limit_bytes = Some(limit_bytes);
        self
    }

    /// Sets how many freed bytes the pool of a device caches; 0 disables the pools of all devices.
    pub fn pool_bytes(mut self, cap_bytes: usize) -> Self {
        self.pool_bytes = cap_bytes;
        self
    }

    /// Sets a fault plan, for tests.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Sets whether the test device `untouchable` exists.
    pub fn untouchable(mut self, exists: bool) -> Self {
        self.untouchable = exists;
        self
    }

    /// Sets the trace of calls to and from plugins.
    pub fn trace(mut self, trace: Arc<Trace>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Sets the allocator of a CUDA device, instead of the backend's own pool. The budget still
    /// limits the memory. Memory for other processes is allocated by the driver.
    pub fn allocator(mut self, device: Device, allocator: Allocator) -> Self {
        self.allocators.push((device, Arc::new(allocator)));
        self
    }

    /// Builds the backend, without allocating memory yet.
    pub fn build(self) -> Backend {
        let policies =
            Policies::new(self.limit_bytes, self.pool_bytes, self.faults).with_allocators(self.allocators);
        let mut backends: Vec<Box<dyn DeviceBackend>> = Vec::new();
        let ranges = self.untouchable.then(Arc::<Ranges>::default);
        let cpu = policies.apply(policies.pooled(HostMemory));
        let shared_files = Arc::new(policies.shared_files());
        let shared = policies.apply(Box::new(shared_files.clone()));
        backends.push(Box::new(HostDevice::cpu(cpu, shared, ranges.clone())));
        if let Some(ranges) = ranges {
            let memory = Published::new(policies.pooled(AliasedMemory), ranges.clone());
            backends.push(Box::new(HostDevice::untouchable(policies.apply(Box::new(memory)), ranges)));
        }
        let foreign = policies.budget().map(|budget| Arc::new(ForeignMemory::new(budget)));
        Backend(Arc::new_cyclic(|inner| {
            let number = inner.as_ptr() as usize;
            let entry = |(index, device)| Entry::new(number, index, device, std::ptr::null_mut());
            Inner {
                devices: backends.into_iter().enumerate().map(entry).collect(),
                shared_files,
                policies,
                forks: forks::count(),
                ledger: Ledger::default(),
                foreign,
                trace: self.trace,
                cuda: OnceLock::new(),
            }
        }))
    }
}

impl Inner {
    /// The devices that may have allocations: the host devices, and the CUDA devices that have been
    /// started.
    fn active(&self) -> impl Iterator<Item = &dyn DeviceBackend> {
        self.active_entries().map(|entry| &*entry.backend)
    }

    fn active_entries(&self) -> impl Iterator<Item = &Entry> {
        let cuda = self.known_cuda().into_iter();
        self.devices.iter().chain(cuda.flat_map(|cuda| (0..cuda.len()).filter_map(|i| cuda.started(i))))
    }

    /// The host devices that exist from the start of the backend.
    pub(crate) fn host_devices(&self) -> impl Iterator<Item = Device> {
        self.devices.iter().map(|entry| entry.backend.describe().device)
    }

    /// Describes all devices, for plugins. Looks for the CUDA driver if necessary.
    pub(crate) fn describe(&self) -> Vec<&DeviceDescription> {
        let host = self.devices.iter().map(|entry| entry.backend.describe());
        host.chain(self.cuda().into_iter().flat_map(Platform::describe)).collect()
    }

    /// Whether this process was forked after the backend was built. A forked process releases
    /// nothing that belongs to the backend.
    pub(crate) fn is_inherited(&self) -> bool {
        self.forks != forks::count()
    }

    /// Adds counters for pinned memory and for all CUDA devices to an account, if `index` is the
    /// index of one of them.
    pub(crate) fn add_devices(&self, counters: &AccountCounters, index: usize) {
        if let (true, Some(cuda)) = (index >= self.devices.len(), self.known_cuda()) {
            counters.add_devices(|| (0..cuda.len()).filter_map(|i| cuda.device(i)).collect());
        }
    }

    pub(crate) fn foreign(&self) -> Option<&Arc<ForeignMemory>> {
        self.foreign.as_ref()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    pub(crate) fn snapshot(&self) -> LedgerSnapshot {
        let cached_bytes = self.active().map(|device| device.memory().cached_bytes() as u64).sum();
        let foreign = self.foreign.as_ref().map(|foreign| foreign.charged()).unwrap_or_default();
        LedgerSnapshot { accounts: self.ledger.read(), cached_bytes, foreign }
    }

    /// The CUDA platform. Looks for the driver at the first call.
    pub(crate) fn cuda(&self) -> Result<&Platform, &CudaMissing> {
        let number = std::ptr::from_ref(self) as usize;
        self.cuda.get_or_init(|| Platform::start(number, self.devices.len(), &self.policies)).as_ref()
    }

    /// The CUDA platform, if the driver has been looked for and found.
    pub(crate) fn known_cuda(&self) -> Option<&Platform> {
        self.cuda.get()?.as_ref().ok()
    }

    pub(crate) fn trim(&self, bytes: usize) -> usize {
        self.active().fold(0, |freed, device| {
            let freed = freed + device.memory().trim(bytes.saturating_sub(freed));
            freed + device.shared().map_or(0, |shared| shared.trim(bytes.saturating_sub(freed)))
        })
    }

    /// Charges the budget, if there is one, for bytes that the backend does not allocate. Trims the
    /// pools if necessary, as an allocation does.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        let Some(budget) = self.policies.budget() else { return Ok(()) };
        match budget.charge(bytes) {
            Err(AllocError::OverLimit { left_bytes, .. })
                if self.trim(bytes.saturating_sub(left_bytes)) > 0 =>
            {
                budget.charge(bytes)
            }
            charged => charged,
        }
    }

    /// Returns charged bytes to the budget.
    pub(crate) fn uncharge(&self, bytes: usize) {
        if let Some(budget) = self.policies.budget() {
            budget.release(bytes);
        }
    }

    /// Returns the device with this index. The index comes from [`Inner::index_of`] or from a
    /// stream of this backend.
    pub(crate) fn device(&self, index: usize) -> Result<&dyn DeviceBackend> {
        self.entry(index).map(|entry| &*entry.backend)
    }

    fn entry(&self, index: usize) -> Result<&Entry> {
        let missing = || Error::internal(format!("no device has index {index}"));
        match index.checked_sub(self.devices.len()) {
            None => self.devices.get(index).ok_or_else(missing),
            Some(i) => self.known_cuda().ok_or_else(missing)?.entry(i),
        }
    }

    /// Whether the device with this index is a CUDA device, whose work runs after the call that
    /// enqueues it. Pinned memory has the index `devices.len()` and is host memory.
    pub(crate) fn is_cuda(&self, index: usize) -> bool {
        index > self.devices.len()
    }

    /// Returns the index of the device of pinned memory. This is `cpu` until a CUDA device has been
    /// started.
    pub(crate) fn pinned_index(&self) -> usize {
        match self.known_cuda() {
            Some(cuda) if cuda.is_started() => self.devices.len(),
            _ => 0,
        }
    }

    /// Returns the index of `device`, or an error if the device does not exist.
    pub(crate) fn index_of(&self, device: Device) -> Result<usize> {
        reject_reserved(device.reserved as u32, "the device")?;
        match device.r#type {
            abi::DEVICE_CPU => return Ok(0),
            abi::DEVICE_CUDA_HOST => return Ok(self.pinned_index()),
            abi::DEVICE_CUDA | abi::DEVICE_CUDA_MANAGED => {
                let cuda = self.cuda().map_err(|missing| Error::device(format!("{device}: {missing}")))?;
                return cuda.index_of(device).ok_or_else(|| self.missing(device));
            }
            _ => {}
        }
        let same = |entry: &Entry| {
            let host_device = entry.backend.describe().device;
            (host_device.r#type, host_device.id) == (device.r#type, device.id)
        };
        self.devices.iter().position(same).ok_or_else(|| self.missing(device))
    }

    #[cold]
    fn missing(&self, device: Device) -> Error {
        let names: Vec<_> = self.describe().into_iter().map(|device| device.name.as_str()).collect();
        Error::device(format!("{device} does not exist on this host; the host has {}", names.join(", ")))
    }

    pub(crate) fn default_stream(&self, index: usize) -> Result<&Stream> {
        self.entry(index).map(|entry| &entry.default_stream)
    }

    pub(crate) fn is_default_stream(&self, stream: *const Stream) -> bool {
        self.active_entries().any(|entry| std::ptr::eq(&entry.default_stream, stream))
    }

    /// Returns the stream that `handle` refers to; `None` for NULL.
    ///
    /// # Safety
    /// `handle` is NULL or a live stream that a backend created.
    pub(crate) unsafe fn stream<'a>(&self, handle: *mut abi::Stream) -> Result<Option<&'a Stream>> {
        if handle.is_null() {
            return Ok(None);
        }
        if !handle.cast::<Stream>().is_aligned() {
            return Err(Error::invalid_argument(format!("{handle:p} is not a stream")));
        }
        // SAFETY: `handle` is a live stream by this function's contract, and aligned. The handle of
        // a stream is the address of its `Stream`.
        let stream = unsafe { &*handle.cast::<Stream>() };
        if stream.backend != std::ptr::from_ref(self) as usize {
            return Err(Error::invalid_argument(format!("stream {handle:p} belongs to another host")));
        }
        Ok(Some(stream))
    }

    /// Returns the device that `address` belongs to, and the block of the address if it is known.
    /// Returns `cpu` if the address is unknown.
    pub(crate) fn locate(&self, address: *const std::ffi::c_void) -> Result<Location> {
        for (index, entry) in self.devices.iter().enumerate() {
            if let Some(Block { base, bytes }) = entry.backend.find_block(address) {
                return Ok(Location { index, device: entry.backend.describe().device, base, bytes });
            }
        }
        let location = match self.known_cuda().filter(|_| !address.is_null()) {
            Some(cuda) => cuda.locate(address)?,
            None => None,
        };
        Ok(location.unwrap_or(Location { index: 0, device: Device::CPU, base: 0, bytes: 0 }))
    }

    pub(crate) fn fault(&self, operation: Operation, what: &str) -> Result<()> {
        let Some(faults) = self.policies.faults() else { return Ok(()) };
        faults
            .pass(operation)
            .map_err(|nth| Error::device(format!("{what} number {nth} was set to fail by the fault plan")))
    }

    /// Converts a failed allocation to an error that states the account, the size, the reason, and
    /// the current allocations.
    #[cold]
    pub(crate) fn explain(
        &self,
        error: AllocError,
        account: &str,
        bytes: usize,
        device_index: usize,
    ) -> Error {
        let device = self.device(device_index).map_or("?", |device| device.describe().name.as_str());
        let usage = self.describe_usage();
        let text = format!("'{account}' asked for {bytes} bytes on {device}: {error}; {usage}");
        match error {
            AllocError::Device(error) if !error.is_out_of_memory() => Error::device(text),
            AllocError::WrongAddress { .. } => Error::device(text),
            _ => Error::out_of_memory(text),
        }
    }

    /// Lists the current allocations, for errors.
    pub(crate) fn describe_usage(&self) -> String {
        let ledger = self.snapshot();
        let leaks = ledger.leaks();
        let mut usage: Vec<_> = leaks.iter().filter(|leak| leak.bytes > 0).map(Leak::to_string).collect();
        let foreign = ledger.foreign.iter();
        usage.extend(foreign.map(|(name, bytes)| format!("'{name}' holds {bytes} bytes of foreign memory")));
        if ledger.cached_bytes > 0 {
            usage.push(format!("pools cache {} bytes", ledger.cached_bytes));
        }
        if usage.is_empty() { "there are no allocations".to_string() } else { usage.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::DriverError;
    use crossdock_plugin_api::Code;

    #[test]
    fn device_errors_and_exhausted_memory_have_different_codes() {
        let backend = Backend::builder().build();
        let explain = |error| backend.0.explain(error, "plugin", 64, 0);
        let broken = explain(AllocError::Device(DriverError::not_initialized("cuMemHostAlloc")));
        assert_eq!(broken.code(), Code(abi::DEVICE));
        let expected = "'plugin' asked for 64 bytes on cpu: the CUDA driver returned CUDA_ERROR_NOT_INITIALIZED (3) from \
                        cuMemHostAlloc; there are no allocations";
        assert_eq!(broken.message(), expected);
        assert_eq!(explain(AllocError::TooLarge).code(), Code(abi::OUT_OF_MEMORY));
    }
}
