//! The owner: devices, budget and books of one host.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::account::Account;
use crate::cuda::{CudaMissing, CudaPresence, FileMemory, IpcDescription, IpcExport, IpcMemory, Platform};
use crate::device::{DeviceBackend, DeviceDescription, Found, HostDevice, Place, Stream};
use crate::entry::Entry;
use crate::fault::{Faults, Operation};
use crate::forks;
use crate::ledger::{Books, Leak, LedgerSnapshot, Page};
use crate::outside::Outside;
use crate::policies::Policies;
use crate::resource::{AliasedMemory, HostMemory, Published, Ranges, Refusal};
use crate::trace::Trace;

/// What a pool keeps at most, unless [`BackendBuilder::pool_bytes`] says otherwise.
const DEFAULT_POOL_BYTES: usize = 256 << 20;

/// One owner of memory. Clones are the same one; two that were built apart share nothing.
#[derive(Clone)]
pub struct Backend(Arc<Inner>);

pub(crate) struct Inner {
    /// `cpu` is the first. Those of CUDA are numbered on.
    devices: Vec<Entry>,
    policies: Policies,
    /// Of the process that it was built in.
    forks: u32,
    books: Books,
    /// Where there is a budget.
    outside: Option<Arc<Outside>>,
    trace: Option<Arc<Trace>>,
    cuda: OnceLock<Result<Platform, CudaMissing>>,
}

/// A [`Backend`] that nobody keeps alive by it.
pub struct WeakBackend(std::sync::Weak<Inner>);

impl WeakBackend {
    /// The backend, if somebody still has it, or memory of it.
    pub fn upgrade(&self) -> Option<Backend> {
        self.0.upgrade().map(Backend)
    }
}

/// How a [`Backend`] is to be.
#[derive(Clone)]
pub struct BackendBuilder {
    limit_bytes: Option<usize>,
    pool_bytes: usize,
    faults: Option<Faults>,
    untouchable: bool,
    trace: Option<Arc<Trace>>,
}

impl Backend {
    /// No limit, a pool of 256 MiB a device, no faults, no test device.
    pub fn builder() -> BackendBuilder {
        let pool_bytes = DEFAULT_POOL_BYTES;
        BackendBuilder { limit_bytes: None, pool_bytes, faults: None, untouchable: false, trace: None }
    }

    /// Opens an account: one for each plugin instance, and one for the host itself. What it holds and copies is
    /// counted under `name`.
    pub fn account(&self, name: &str) -> Arc<Account> {
        Account::open(self.0.clone(), name)
    }

    /// Who holds what, and what was copied.
    pub fn ledger(&self) -> LedgerSnapshot {
        self.0.ledger()
    }

    pub(crate) fn is(&self, other: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, other)
    }

    /// All that has not been given back by now: asked when everything should have been, these are the leaks.
    pub fn leaks(&self) -> Vec<Leak> {
        self.ledger().leaks()
    }

    /// The devices that memory can be had on, `cpu` first. Those of CUDA are among them once the driver has been looked for,
    /// which [`Backend::cuda`] does, and the first use of one.
    pub fn devices(&self) -> Vec<DeviceDescription> {
        let host = self.0.devices.iter().map(|entry| entry.backend.describe());
        host.chain(self.0.known_cuda().into_iter().flat_map(Platform::describe)).cloned().collect()
    }

    /// The CUDA driver and its devices, or what is missing for them. The driver is looked for once, at the first call
    /// that asks; this takes as long as the driver takes to start.
    pub fn cuda(&self) -> Result<&CudaPresence, &CudaMissing> {
        self.0.cuda().map(Platform::presence)
    }

    /// Whether a stranger's stream has run all that it was given, so that nobody has to wait for it. `false` also where that
    /// would cost more to tell than an event does.
    ///
    /// # Safety
    /// A live stream of the device, or anything on a device that has none.
    pub unsafe fn is_idle(&self, device: Device, stream: *mut std::ffi::c_void) -> bool {
        let found = self.0.index_of(device).and_then(|index| self.0.device(index));
        // SAFETY: by this function's own contract.
        found.is_ok_and(|device| unsafe { device.stream_is_idle(stream) })
    }

    /// Whether a stream of a device is under graph capture, as far as the driver says. Asking changes nothing.
    ///
    /// # Safety
    /// As [`Backend::is_idle`].
    pub unsafe fn is_capturing(&self, device: Device, stream: *mut std::ffi::c_void) -> bool {
        let found = self.0.index_of(device).and_then(|index| self.0.device(index));
        // SAFETY: by this function's own contract.
        found.is_ok_and(|device| unsafe { device.raw_stream_is_capturing(stream) })
    }

    /// Lets other processes on this machine open `bytes` bytes at `address`: memory of a CUDA device that
    /// [`Account::allocate_shareable`] gave, or that a stranger got by `cuMemAlloc`. Who opens it waits for the event at
    /// `sync_event` (null: it is ready), and may reach the whole allocation.
    ///
    /// # Errors
    /// It is no such memory (a pool's is not: the error says what to do), or the driver cannot share any.
    ///
    /// # Safety
    /// `sync_event` is null, or points at the handle of a live event. The memory and the result are kept until each opener
    /// has let go of it.
    pub unsafe fn export_ipc(
        &self,
        address: u64,
        bytes: u64,
        sync_event: *mut std::ffi::c_void,
    ) -> Result<IpcExport> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        // SAFETY: by this function's own contract.
        unsafe { cuda.export_ipc(address, bytes, sync_event) }
    }

    /// Opens what another process has exported. The result owns the mapping: a client's buffer over it has it for owner.
    ///
    /// # Errors
    /// This very process exported it, which the driver refuses; its GPU is not seen here; the exporter is gone; or the range
    /// does not lie in the allocation.
    pub fn open_ipc(&self, description: &IpcDescription) -> Result<IpcMemory> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.open_ipc(description)
    }

    /// Bytes of a CUDA device's memory that are taken and not from this backend's pool: what others in this process have, and
    /// other processes. On a GPU the driver counts in steps of 2 MiB. `None` for any other device, and for one that nothing
    /// was done on yet.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn foreign_bytes(&self, device: Device) -> Result<Option<u64>> {
        let ordinal = usize::try_from(device.id).ok().filter(|_| device.r#type == abi::DEVICE_CUDA);
        match (self.0.known_cuda(), ordinal) {
            (Some(cuda), Some(ordinal)) => cuda.foreign_bytes(ordinal),
            _ => Ok(None),
        }
    }

    /// Memory that [`Account::allocate_exportable`] gave, as an open file for other processes, and how many bytes they open. It
    /// brings no event along: what is to be seen there has run before.
    ///
    /// # Errors
    /// It is no such memory.
    pub fn export_file(&self, address: u64) -> Result<(OwnedFd, u64)> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.export_file(address)
    }

    /// Opens memory of `device` that another process, which this one trusts to name it rightly, exported as `file` with so many
    /// bytes. The result owns the mapping: a client's buffer over it has it for owner.
    ///
    /// # Errors
    /// The file is no such memory, has another size, or lies on another device.
    pub fn open_file(&self, device: Device, file: OwnedFd, bytes: u64) -> Result<FileMemory> {
        let cuda = self.0.cuda().map_err(|missing| Error::device(missing.to_string()))?;
        cuda.open_file(device, file, bytes)
    }

    /// Gives what the pools keep back to the system. Returns how many bytes that were.
    pub fn trim(&self) -> usize {
        self.0.trim(usize::MAX)
    }

    /// Blocks until everything that waits for a device to be done with it has been given back or called, but for what waits
    /// for the end of a graph capture.
    pub fn settle(&self) {
        if let Some(cuda) = self.0.known_cuda() {
            cuda.settle();
        }
    }

    /// Blocks like [`Backend::settle`]; what is to be given back or called after that is not. For the end of a process that
    /// takes away what strangers' releases need, as an interpreter's does.
    pub fn settle_and_leak(&self) {
        if let Some(cuda) = self.0.known_cuda() {
            cuda.reaper().flush_and_leak();
            cuda.settle();
        }
    }

    /// For those who want to reach it as long as it is there.
    pub fn downgrade(&self) -> WeakBackend {
        WeakBackend(Arc::downgrade(&self.0))
    }

    /// Where calls are recorded, if they are.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.0.trace.as_ref()
    }

    /// The session's budget in bytes, if there is one.
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
    /// The budget: how many bytes may be held at once over all devices, including what the pools of host memory keep. A
    /// CUDA device's pool keeps at most as many of its own.
    pub fn limit_bytes(mut self, limit_bytes: usize) -> Self {
        self.limit_bytes = Some(limit_bytes);
        self
    }

    /// How many freed bytes each device's pool may keep for reuse; 0 for no pool.
    pub fn pool_bytes(mut self, cap_bytes: usize) -> Self {
        self.pool_bytes = cap_bytes;
        self
    }

    /// A fault plan, for tests.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Whether the test device `untouchable` exists.
    pub fn untouchable(mut self, exists: bool) -> Self {
        self.untouchable = exists;
        self
    }

    /// Where calls of and by plugins are recorded.
    pub fn trace(mut self, trace: Arc<Trace>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The backend. Asks the system for nothing yet.
    pub fn build(self) -> Backend {
        let policies = Policies::new(self.limit_bytes, self.pool_bytes, self.faults);
        let mut backends: Vec<Box<dyn DeviceBackend>> = Vec::new();
        let ranges = self.untouchable.then(Arc::<Ranges>::default);
        let cpu = policies.apply(policies.pooled(HostMemory));
        backends.push(Box::new(HostDevice::cpu(cpu, ranges.clone())));
        if let Some(ranges) = ranges {
            let memory = Published::new(policies.pooled(AliasedMemory), ranges.clone());
            backends.push(Box::new(HostDevice::untouchable(policies.apply(Box::new(memory)), ranges)));
        }
        let outside = policies.budget().map(|budget| Arc::new(Outside::new(budget)));
        Backend(Arc::new_cyclic(|inner| {
            let number = inner.as_ptr() as usize;
            let entry = |(index, device)| Entry::new(number, index, device, std::ptr::null_mut());
            Inner {
                devices: backends.into_iter().enumerate().map(entry).collect(),
                policies,
                forks: forks::count(),
                books: Books::default(),
                outside,
                trace: self.trace,
                cuda: OnceLock::new(),
            }
        }))
    }
}

impl Inner {
    /// The devices that hold anything: those of the host, and of CUDA those that were started.
    fn working(&self) -> impl Iterator<Item = &dyn DeviceBackend> {
        self.working_entries().map(|entry| &*entry.backend)
    }

    fn working_entries(&self) -> impl Iterator<Item = &Entry> {
        let cuda = self.known_cuda().into_iter();
        self.devices.iter().chain(cuda.flat_map(|cuda| (0..cuda.len()).filter_map(|i| cuda.started(i))))
    }

    /// The host's own devices, which are there from the beginning.
    pub(crate) fn host_devices(&self) -> impl Iterator<Item = Device> {
        self.devices.iter().map(|entry| entry.backend.describe().device)
    }

    /// What a plugin is told of; the driver is looked for.
    pub(crate) fn describe(&self) -> Vec<&DeviceDescription> {
        let host = self.devices.iter().map(|entry| entry.backend.describe());
        host.chain(self.cuda().into_iter().flat_map(Platform::describe)).collect()
    }

    /// Whether it was built before this process was forked off: nothing of it is given back here.
    pub(crate) fn is_inherited(&self) -> bool {
        self.forks != forks::count()
    }

    /// Makes room for CUDA's devices on an account's page, if `index` is one of theirs.
    pub(crate) fn extend(&self, page: &Page, index: usize) {
        if let (true, Some(cuda)) = (index >= self.devices.len(), self.known_cuda()) {
            page.extend(|| (0..cuda.len()).filter_map(|i| cuda.name(i)).collect());
        }
    }

    pub(crate) fn outside(&self) -> Option<&Arc<Outside>> {
        self.outside.as_ref()
    }

    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    pub(crate) fn ledger(&self) -> LedgerSnapshot {
        let cached_bytes = self.working().map(|device| device.memory().cached_bytes() as u64).sum();
        let outside = self.outside.as_ref().map(|outside| outside.charged()).unwrap_or_default();
        LedgerSnapshot { accounts: self.books.read(), cached_bytes, outside }
    }

    /// CUDA, looked for if it was not.
    pub(crate) fn cuda(&self) -> Result<&Platform, &CudaMissing> {
        let number = std::ptr::from_ref(self) as usize;
        self.cuda.get_or_init(|| Platform::start(number, self.devices.len(), &self.policies)).as_ref()
    }

    /// CUDA, if it was looked for and found.
    pub(crate) fn known_cuda(&self) -> Option<&Platform> {
        self.cuda.get()?.as_ref().ok()
    }

    pub(crate) fn trim(&self, bytes: usize) -> usize {
        self.working().fold(0, |freed, device| freed + device.memory().trim(bytes.saturating_sub(freed)))
    }

    /// Takes bytes that others allocate out of the budget, if there is one. What the pools keep gives way, as it does for a block.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Refusal> {
        let Some(budget) = self.policies.budget() else { return Ok(()) };
        match budget.charge(bytes) {
            Err(Refusal::OverLimit { left_bytes, .. }) if self.trim(bytes.saturating_sub(left_bytes)) > 0 => {
                budget.charge(bytes)
            }
            charged => charged,
        }
    }

    /// Puts back what was charged.
    pub(crate) fn uncharge(&self, bytes: usize) {
        if let Some(budget) = self.policies.budget() {
            budget.give_back(bytes);
        }
    }

    /// The device by its index in here; indices come from [`Inner::index_of`] and from streams of this backend.
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

    /// Whether a device of this index is CUDA's, whose streams run later; pinned memory is the host's.
    pub(crate) fn is_cuda(&self, index: usize) -> bool {
        index > self.devices.len()
    }

    /// Where pinned memory comes from: the host's own memory where nothing of CUDA was started.
    pub(crate) fn pinned_index(&self) -> usize {
        match self.known_cuda() {
            Some(cuda) if cuda.is_started() => self.devices.len(),
            _ => 0,
        }
    }

    /// Where memory of `device` is, or which device does not exist.
    pub(crate) fn index_of(&self, device: Device) -> Result<usize> {
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
            let own = entry.backend.describe().device;
            (own.r#type, own.id) == (device.r#type, device.id)
        };
        self.devices.iter().position(same).ok_or_else(|| self.missing(device))
    }

    #[cold]
    fn missing(&self, device: Device) -> Error {
        let names: Vec<_> = self.describe().into_iter().map(|device| device.name.as_str()).collect();
        Error::device(format!("{device} does not exist on this host; it has {}", names.join(", ")))
    }

    pub(crate) fn default_stream(&self, index: usize) -> Result<&Stream> {
        self.entry(index).map(|entry| &entry.default_stream)
    }

    pub(crate) fn is_default_stream(&self, stream: *const Stream) -> bool {
        self.working_entries().any(|entry| std::ptr::eq(&entry.default_stream, stream))
    }

    /// A stream by its handle; `None` for NULL.
    ///
    /// # Safety
    /// NULL, or a live stream that some backend made.
    pub(crate) unsafe fn stream<'a>(&self, handle: *mut abi::Stream) -> Result<Option<&'a Stream>> {
        if handle.is_null() {
            return Ok(None);
        }
        if !handle.cast::<Stream>().is_aligned() {
            return Err(Error::invalid_argument(format!("{handle:p} is not a stream")));
        }
        // SAFETY: a live stream by the caller's word, and a stream's handle is the address of a `Stream`.
        let stream = unsafe { &*handle.cast::<Stream>() };
        if stream.backend != std::ptr::from_ref(self) as usize {
            return Err(Error::invalid_argument(format!(
                "stream {handle:p} was made by another host's memory"
            )));
        }
        Ok(Some(stream))
    }

    /// The device that `address` lies on, and its block where that is known; the host where nobody knows.
    pub(crate) fn owner_of(&self, address: *const std::ffi::c_void) -> Result<Place> {
        for (index, entry) in self.devices.iter().enumerate() {
            if let Found::Block { base, bytes } = entry.backend.find(address) {
                return Ok(Place { index, device: entry.backend.describe().device, base, bytes });
            }
        }
        let known = match self.known_cuda().filter(|_| !address.is_null()) {
            Some(cuda) => cuda.find(address)?,
            None => None,
        };
        Ok(known.unwrap_or(Place { index: 0, device: Device::CPU, base: 0, bytes: 0 }))
    }

    pub(crate) fn fault(&self, operation: Operation, what: &str) -> Result<()> {
        let Some(faults) = self.policies.faults() else { return Ok(()) };
        faults
            .pass(operation)
            .map_err(|nth| Error::device(format!("{what} number {nth} was set to fail by the fault plan")))
    }

    /// Who asked for how much, why there is none, and who holds what.
    #[cold]
    pub(crate) fn explain(
        &self,
        refusal: Refusal,
        account: &str,
        bytes: usize,
        device_index: usize,
    ) -> Error {
        let device = self.device(device_index).map_or("?", |device| device.describe().name.as_str());
        let asked = format!("'{account}' asked for {bytes} bytes on {device}");
        let text = format!("{asked}: {refusal}; {}", self.held_in_words());
        match refusal {
            Refusal::Device(answer) if !answer.is_out_of_memory() => Error::device(text),
            _ => Error::out_of_memory(text),
        }
    }

    /// Who holds what of the budget.
    pub(crate) fn held_in_words(&self) -> String {
        let ledger = self.ledger();
        let leaks = ledger.leaks();
        let mut held: Vec<_> = leaks.iter().filter(|leak| leak.bytes > 0).map(Leak::to_string).collect();
        let outside = ledger.outside.iter();
        held.extend(
            outside.map(|(name, bytes)| format!("'{name}' lends {bytes} bytes in memory of its own")),
        );
        if ledger.cached_bytes > 0 {
            held.push(format!("pools keep {} bytes", ledger.cached_bytes));
        }
        if held.is_empty() { "nobody holds any".to_string() } else { held.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Answer;
    use crossdock_plugin_api::Code;

    #[test]
    fn a_device_that_fails_is_not_told_as_one_that_is_full() {
        let backend = Backend::builder().build();
        let explain = |refusal| backend.0.explain(refusal, "somebody", 64, 0);
        let broken = explain(Refusal::Device(Answer::not_started("cuMemHostAlloc")));
        assert_eq!(broken.code(), Code(abi::DEVICE));
        let told = "'somebody' asked for 64 bytes on cpu: the CUDA driver answered CUDA_ERROR_NOT_INITIALIZED (3) to \
                    cuMemHostAlloc; nobody holds any";
        assert_eq!(broken.message(), told);
        assert_eq!(explain(Refusal::TooLarge).code(), Code(abi::OUT_OF_MEMORY));
    }
}
