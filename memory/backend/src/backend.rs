//! The owner: devices, budget and books of one host.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{Device, Error, Result, abi};

use crate::account::Account;
use crate::cuda::{CudaMissing, CudaPresence};
use crate::device::{DeviceBackend, DeviceDescription, Found, HostDevice, Stream};
use crate::fault::{Faults, Operation};
use crate::ledger::{Books, Leak, LedgerSnapshot};
use crate::resource::{
    AliasedMemory, Budget, Faulty, HostMemory, Limited, Pool, Published, Ranges, Refusal, Resource,
};

/// What a pool keeps at most, unless [`BackendBuilder::pool_bytes`] says otherwise.
const DEFAULT_POOL_BYTES: usize = 256 << 20;

/// One owner of memory. Clones are the same one; two that were built apart share nothing.
#[derive(Clone)]
pub struct Backend(Arc<Inner>);

pub(crate) struct Inner {
    /// `cpu` is the first.
    devices: Vec<Entry>,
    budget: Option<Arc<Budget>>,
    faults: Option<Faults>,
    books: Books,
    cuda: OnceLock<Result<CudaPresence, CudaMissing>>,
}

struct Entry {
    backend: Box<dyn DeviceBackend>,
    default_stream: Stream,
}

/// How a [`Backend`] is to be.
#[derive(Clone)]
pub struct BackendBuilder {
    limit_bytes: Option<usize>,
    pool_bytes: usize,
    faults: Option<Faults>,
    untouchable: bool,
}

impl Backend {
    /// No limit, a pool of 256 MiB a device, no faults, no test device.
    pub fn builder() -> BackendBuilder {
        BackendBuilder { limit_bytes: None, pool_bytes: DEFAULT_POOL_BYTES, faults: None, untouchable: false }
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

    /// All blocks that have not been given back by now: asked when everything should have been, these are the leaks.
    pub fn leaks(&self) -> Vec<Leak> {
        self.ledger().leaks()
    }

    /// The devices that memory can be had on, `cpu` first.
    pub fn devices(&self) -> Vec<DeviceDescription> {
        self.0.devices().map(|device| device.describe().clone()).collect()
    }

    /// The CUDA driver and its devices, or what is missing for them. The driver is looked for once, at the first call
    /// that asks; this takes as long as the driver takes to start.
    pub fn cuda(&self) -> Result<&CudaPresence, &CudaMissing> {
        self.0.cuda()
    }

    /// Gives what the pools keep back to the system. Returns how many bytes that were.
    pub fn trim(&self) -> usize {
        self.0.trim(usize::MAX)
    }

    /// The session's budget in bytes, if there is one.
    pub fn limit_bytes(&self) -> Option<usize> {
        self.0.budget.as_ref().map(|budget| budget.limit_bytes())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.devices().map(|device| device.describe().name.as_str()).collect();
        f.debug_struct("Backend").field("devices", &names).field("limit_bytes", &self.limit_bytes()).finish()
    }
}

impl BackendBuilder {
    /// The budget: how many bytes may be held at once over all devices, including what the pools keep.
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

    /// The backend. Asks the system for nothing yet.
    pub fn build(self) -> Backend {
        let budget = self.limit_bytes.map(|bytes| Arc::new(Budget::new(bytes)));
        let mut backends: Vec<Box<dyn DeviceBackend>> = Vec::new();
        let ranges = self.untouchable.then(Arc::<Ranges>::default);
        let cpu = self.policies(self.pooled(HostMemory, &budget), &budget);
        backends.push(Box::new(HostDevice::cpu(cpu, ranges.clone())));
        if let Some(ranges) = ranges {
            let memory = Published::new(self.pooled(AliasedMemory, &budget), ranges.clone());
            let memory = self.policies(Box::new(memory), &budget);
            backends.push(Box::new(HostDevice::untouchable(memory, ranges)));
        }
        Backend(Arc::new_cyclic(|inner| {
            let entry = |(device_index, backend)| Entry {
                backend,
                default_stream: Stream {
                    backend: inner.as_ptr() as usize,
                    device_index,
                    raw: std::ptr::null_mut(),
                },
            };
            Inner {
                devices: backends.into_iter().enumerate().map(entry).collect(),
                budget,
                faults: self.faults,
                books: Books::default(),
                cuda: OnceLock::new(),
            }
        }))
    }

    fn pooled(&self, memory: impl Resource + 'static, budget: &Option<Arc<Budget>>) -> Box<dyn Resource> {
        if self.pool_bytes == 0 {
            return Box::new(memory);
        }
        Box::new(Pool::new(memory, self.pool_bytes, budget.clone()))
    }

    fn policies(&self, mut memory: Box<dyn Resource>, budget: &Option<Arc<Budget>>) -> Box<dyn Resource> {
        if let Some(budget) = budget {
            memory = Box::new(Limited::new(memory, budget.clone()));
        }
        if let Some(faults) = &self.faults {
            memory = Box::new(Faulty::new(memory, faults.clone()));
        }
        memory
    }
}

impl Inner {
    pub(crate) fn devices(&self) -> impl Iterator<Item = &dyn DeviceBackend> {
        self.devices.iter().map(|entry| &*entry.backend)
    }

    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) fn ledger(&self) -> LedgerSnapshot {
        let cached_bytes = self.devices().map(|device| device.memory().cached_bytes() as u64).sum();
        LedgerSnapshot { accounts: self.books.read(), cached_bytes }
    }

    pub(crate) fn cuda(&self) -> Result<&CudaPresence, &CudaMissing> {
        self.cuda.get_or_init(crate::cuda::probe).as_ref()
    }

    pub(crate) fn trim(&self, bytes: usize) -> usize {
        self.devices().fold(0, |freed, device| freed + device.memory().trim(bytes.saturating_sub(freed)))
    }

    /// The device by its index in here; indices come from [`Inner::index_of`] and from streams of this backend.
    pub(crate) fn device(&self, index: usize) -> Result<&dyn DeviceBackend> {
        let entry = self.devices.get(index);
        entry
            .map(|entry| &*entry.backend)
            .ok_or_else(|| Error::internal(format!("no device has index {index}")))
    }

    /// Where memory of `device` is, or which device does not exist.
    pub(crate) fn index_of(&self, device: Device) -> Result<usize> {
        if matches!(device.r#type, abi::DEVICE_CPU | abi::DEVICE_CUDA_HOST) {
            return Ok(0);
        }
        let same = |d: &dyn DeviceBackend| {
            (d.describe().device.r#type, d.describe().device.id) == (device.r#type, device.id)
        };
        self.devices().position(same).ok_or_else(|| self.missing(device))
    }

    #[cold]
    fn missing(&self, device: Device) -> Error {
        if matches!(device.r#type, abi::DEVICE_CUDA | abi::DEVICE_CUDA_MANAGED) {
            return match self.cuda() {
                Err(missing) => Error::device(format!("{device}: {missing}")),
                Ok(_) => Error::unsupported(format!(
                    "{device}: the CUDA backend of this version can list devices, not allocate on them yet"
                )),
            };
        }
        let names: Vec<_> = self.devices().map(|device| device.describe().name.as_str()).collect();
        Error::device(format!("{device} does not exist on this host; it has {}", names.join(", ")))
    }

    pub(crate) fn default_stream(&self, index: usize) -> Result<&Stream> {
        let entry = self.devices.get(index);
        entry
            .map(|entry| &entry.default_stream)
            .ok_or_else(|| Error::internal(format!("no device has index {index}")))
    }

    pub(crate) fn is_default_stream(&self, stream: *const Stream) -> bool {
        self.devices.iter().any(|entry| std::ptr::eq(&entry.default_stream, stream))
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

    /// The device whose block `address` lies in, with the block; the host where nobody knows.
    pub(crate) fn owner_of(&self, address: *const std::ffi::c_void) -> (usize, Found) {
        let found = |(index, device): (usize, &dyn DeviceBackend)| match device.find(address) {
            Found::No => None,
            block => Some((index, block)),
        };
        self.devices().enumerate().find_map(found).unwrap_or((0, Found::No))
    }

    pub(crate) fn fault(&self, operation: Operation, what: &str) -> Result<()> {
        let Some(faults) = &self.faults else { return Ok(()) };
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
        let ledger = self.ledger();
        let mut held: Vec<_> = ledger.leaks().iter().map(Leak::to_string).collect();
        if ledger.cached_bytes > 0 {
            held.push(format!("pools keep {} bytes", ledger.cached_bytes));
        }
        let held = if held.is_empty() { "nobody holds any".to_string() } else { held.join(", ") };
        Error::out_of_memory(format!("{asked}: {refusal}; {held}"))
    }
}
