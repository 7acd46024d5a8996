//! The counters of the ledger, which any thread updates and reads.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicI64, AtomicU64, Mutex, MutexGuard, OnceLock};
use super::{AccountUse, CopyTraffic, Device, DeviceUse, Traffic};

/// The counters of one account.
pub(crate) struct AccountCounters {
    name: String,
    devices: Vec<DeviceCounters>,
    /// Counters of pinned memory and the CUDA devices, set at the first use of one of these
    /// devices. The indices follow the indices of `devices`.
    cuda_devices: OnceLock<Vec<DeviceCounters>>,
    /// Copies from host to device, device to host, device to device, and host to host, in this
    /// order.
    copied: [TrafficCounters; 4],
    launches: AtomicU64,
}

struct DeviceCounters {
    device: Device,
    bytes: AtomicU64,
    blocks: AtomicU64,
    peak_bytes: AtomicU64,
    /// Number of streams created minus number destroyed. An account may destroy streams that
    /// another account created, so the difference may be negative.
    streams: AtomicI64,
    events: AtomicI64,
}

impl DeviceCounters {
    fn new(device: Device) -> Self {
        let [bytes, blocks, peak_bytes] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { device, bytes, blocks, peak_bytes, streams: AtomicI64::new(0), events: AtomicI64::new(0) }
    }
}

#[derive(Default)]
struct TrafficCounters {
    bytes: AtomicU64,
    copies: AtomicU64,
}

impl AccountCounters {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds counters for the CUDA devices at the first call.
    pub(crate) fn add_devices(&self, devices: impl FnOnce() -> Vec<Device>) {
        self.cuda_devices.get_or_init(|| devices().into_iter().map(DeviceCounters::new).collect());
    }

    fn device(&self, device_index: usize) -> Option<&DeviceCounters> {
        match device_index.checked_sub(self.devices.len()) {
            None => self.devices.get(device_index),
            Some(index) => self.cuda_devices.get()?.get(index),
        }
    }

    pub(crate) fn add_block(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.device(device_index) else { return };
        counters.blocks.fetch_add(1, Relaxed);
        let live_bytes = counters.bytes.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        // The load avoids a write if this allocation does not raise the peak.
        if live_bytes > counters.peak_bytes.load(Relaxed) {
            counters.peak_bytes.fetch_max(live_bytes, Relaxed);
        }
    }

    pub(crate) fn remove_block(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.device(device_index) else { return };
        counters.blocks.fetch_sub(1, Relaxed);
        counters.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Adds `delta` to the number of streams.
    pub(crate) fn add_streams(&self, device_index: usize, delta: i64) {
        if let Some(counters) = self.device(device_index) {
            counters.streams.fetch_add(delta, Relaxed);
        }
    }

    /// Adds `delta` to the number of events.
    pub(crate) fn add_events(&self, device_index: usize, delta: i64) {
        if let Some(counters) = self.device(device_index) {
            counters.events.fetch_add(delta, Relaxed);
        }
    }

    pub(crate) fn add_copy(&self, from_host: bool, to_host: bool, bytes: usize) {
        let [host_to_device, device_to_host, device_to_device, host_to_host] = &self.copied;
        let traffic = match (from_host, to_host) {
            (true, false) => host_to_device,
            (false, true) => device_to_host,
            (false, false) => device_to_device,
            (true, true) => host_to_host,
        };
        traffic.bytes.fetch_add(bytes as u64, Relaxed);
        traffic.copies.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_launch(&self) {
        self.launches.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> AccountUse {
        let traffic = |counters: &TrafficCounters| Traffic {
            bytes: counters.bytes.load(Relaxed),
            copies: counters.copies.load(Relaxed),
        };
        let [host_to_device, device_to_host, device_to_device, host_to_host] =
            self.copied.each_ref().map(traffic);
        let device = |counters: &DeviceCounters| DeviceUse {
            device: counters.device,
            live_bytes: counters.bytes.load(Relaxed),
            live_blocks: counters.blocks.load(Relaxed),
            peak_bytes: counters.peak_bytes.load(Relaxed),
            live_streams: u64::try_from(counters.streams.load(Relaxed)).unwrap_or(0),
            live_events: u64::try_from(counters.events.load(Relaxed)).unwrap_or(0),
        };
        AccountUse {
            name: self.name.clone(),
            devices: self
                .devices
                .iter()
                .chain(self.cuda_devices.get().into_iter().flatten())
                .map(device)
                .collect(),
            copied: CopyTraffic { host_to_device, device_to_host, device_to_device, host_to_host },
            launches: self.launches.load(Relaxed),
        }
    }
}

/// The accounts of a backend. Closed accounts are summed by name, so that the number of names
/// limits the size of the ledger.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Accounts>);

#[derive(Default)]
struct Accounts {
    open: Vec<Arc<AccountCounters>>,
    closed: BTreeMap<String, AccountUse>,
}

impl Ledger {
    pub(crate) fn open(&self, name: &str, devices: impl Iterator<Item = Device>) -> Arc<AccountCounters> {
        let account = Arc::new(AccountCounters {
            name: name.to_string(),
            devices: devices.map(DeviceCounters::new).collect(),
            cuda_devices: OnceLock::new(),
            copied: Default::default(),
            launches: AtomicU64::new(0),
        });
        self.accounts().open.push(account.clone());
        account
    }

    /// Closes an account that has no allocations left.
    pub(crate) fn close(&self, account: &Arc<AccountCounters>) {
        let totals = account.read();
        let mut accounts = self.accounts();
        accounts.open.retain(|open| !Arc::ptr_eq(open, account));
        match accounts.closed.get_mut(&totals.name) {
            Some(sum) => sum.absorb(&totals),
            None => {
                accounts.closed.insert(totals.name.clone(), totals);
            }
        }
    }

    pub(crate) fn read(&self) -> Vec<AccountUse> {
        let accounts = self.accounts();
        accounts.open.iter().map(|account| account.read()).chain(accounts.closed.values().cloned()).collect()
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
