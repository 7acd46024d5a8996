//! Who holds how many bytes on which device, and what was moved for them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::Device;

/// The books at one moment. Counters of a busy backend are read one after the other, not all at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// The accounts that are open, in the order in which they were opened, then one for each name that was closed,
    /// summed up.
    pub accounts: Vec<AccountUse>,
    /// Bytes that the pools keep for later. Nobody holds them.
    pub cached_bytes: u64,
}

/// What one account holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountUse {
    /// The name that it was opened under.
    pub name: String,
    /// For each device of the backend, in its order.
    pub devices: Vec<DeviceUse>,
    /// What was copied.
    pub copied: Copied,
    /// Kernels launched.
    pub launches: u64,
}

/// What one account holds on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device.
    pub device: Device,
    /// Bytes in blocks that were not given back, as they were asked for.
    pub live_bytes: u64,
    /// How many such blocks.
    pub live_blocks: u64,
    /// The most bytes that there were at once.
    pub peak_bytes: u64,
}

/// Copies by direction. A device is what the host cannot reach, the test device included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Host to device.
    pub host_to_device: Traffic,
    /// Device to host.
    pub device_to_host: Traffic,
    /// Device to device.
    pub device_to_device: Traffic,
    /// Host to host.
    pub host_to_host: Traffic,
}

/// How much went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Copies.
    pub copies: u64,
}

/// Blocks that an account has not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Whose.
    pub account: String,
    /// Where.
    pub device: Device,
    /// How many bytes.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
}

impl LedgerSnapshot {
    /// Bytes in live blocks, over all accounts and devices.
    pub fn live_bytes(&self) -> u64 {
        self.accounts.iter().flat_map(|account| &account.devices).map(|device| device.live_bytes).sum()
    }

    /// What was copied, over all accounts.
    pub fn copied(&self) -> Copied {
        let mut sum = Copied::default();
        self.accounts.iter().for_each(|account| sum += account.copied);
        sum
    }

    /// All blocks that are not given back, by account and device.
    pub fn leaks(&self) -> Vec<Leak> {
        let of_account = |account: &AccountUse| {
            let name = account.name.clone();
            let held = account.devices.iter().filter(|device| device.live_blocks > 0);
            held.map(|d| Leak {
                account: name.clone(),
                device: d.device,
                bytes: d.live_bytes,
                blocks: d.live_blocks,
            })
            .collect::<Vec<_>>()
        };
        self.accounts.iter().flat_map(of_account).collect()
    }
}

impl Copied {
    /// What was added since `earlier`.
    pub fn since(self, earlier: Copied) -> Copied {
        Copied {
            host_to_device: self.host_to_device.since(earlier.host_to_device),
            device_to_host: self.device_to_host.since(earlier.device_to_host),
            device_to_device: self.device_to_device.since(earlier.device_to_device),
            host_to_host: self.host_to_host.since(earlier.host_to_host),
        }
    }

    /// Bytes in all four directions.
    pub fn bytes(&self) -> u64 {
        let Copied { host_to_device, device_to_host, device_to_device, host_to_host } = self;
        host_to_device.bytes + device_to_host.bytes + device_to_device.bytes + host_to_host.bytes
    }
}

impl Traffic {
    fn since(self, earlier: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            copies: self.copies.saturating_sub(earlier.copies),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.copies += other.copies;
    }
}

impl AddAssign for Copied {
    fn add_assign(&mut self, other: Self) {
        self.host_to_device += other.host_to_device;
        self.device_to_host += other.device_to_host;
        self.device_to_device += other.device_to_device;
        self.host_to_host += other.host_to_host;
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leak { account, device, bytes, blocks } = self;
        let s = if *blocks == 1 { "" } else { "s" };
        write!(f, "'{account}' holds {bytes} bytes in {blocks} block{s} on {device}")
    }
}

/// One account's counters.
pub(crate) struct Page {
    name: String,
    devices: Vec<DeviceCounters>,
    /// By [`Direction`].
    copied: [TrafficCounters; 4],
    launches: AtomicU64,
}

struct DeviceCounters {
    device: Device,
    bytes: AtomicU64,
    blocks: AtomicU64,
    peak_bytes: AtomicU64,
}

#[derive(Default)]
struct TrafficCounters {
    bytes: AtomicU64,
    copies: AtomicU64,
}

impl Page {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn took(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.devices.get(device_index) else { return };
        counters.blocks.fetch_add(1, Relaxed);
        let now = counters.bytes.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        // Read first: an allocation that sets no record then writes one counter less.
        if now > counters.peak_bytes.load(Relaxed) {
            counters.peak_bytes.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn gave_back(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.devices.get(device_index) else { return };
        counters.blocks.fetch_sub(1, Relaxed);
        counters.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    pub(crate) fn copied(&self, from_host: bool, to_host: bool, bytes: usize) {
        let [host_to_device, device_to_host, device_to_device, host_to_host] = &self.copied;
        let way = match (from_host, to_host) {
            (true, false) => host_to_device,
            (false, true) => device_to_host,
            (false, false) => device_to_device,
            (true, true) => host_to_host,
        };
        way.bytes.fetch_add(bytes as u64, Relaxed);
        way.copies.fetch_add(1, Relaxed);
    }

    pub(crate) fn launched(&self) {
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
        };
        AccountUse {
            name: self.name.clone(),
            devices: self.devices.iter().map(device).collect(),
            copied: Copied { host_to_device, device_to_host, device_to_device, host_to_host },
            launches: self.launches.load(Relaxed),
        }
    }
}

/// All pages of a backend. Closed accounts are summed up by name, so that it grows with names and not with time.
#[derive(Default)]
pub(crate) struct Books(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    open: Vec<Arc<Page>>,
    closed: BTreeMap<String, AccountUse>,
}

impl Books {
    pub(crate) fn open(&self, name: &str, devices: impl Iterator<Item = Device>) -> Arc<Page> {
        let counters = |device| DeviceCounters {
            device,
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
        };
        let page = Arc::new(Page {
            name: name.to_string(),
            devices: devices.map(counters).collect(),
            copied: Default::default(),
            launches: AtomicU64::new(0),
        });
        self.pages().open.push(page.clone());
        page
    }

    /// For an account that holds nothing any more.
    pub(crate) fn close(&self, page: &Arc<Page>) {
        let last = page.read();
        let mut pages = self.pages();
        pages.open.retain(|open| !Arc::ptr_eq(open, page));
        match pages.closed.get_mut(&last.name) {
            Some(sum) => sum.absorb(&last),
            None => {
                pages.closed.insert(last.name.clone(), last);
            }
        }
    }

    pub(crate) fn read(&self) -> Vec<AccountUse> {
        let pages = self.pages();
        pages.open.iter().map(|page| page.read()).chain(pages.closed.values().cloned()).collect()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AccountUse {
    fn absorb(&mut self, later: &AccountUse) {
        self.copied += later.copied;
        self.launches += later.launches;
        for (sum, device) in self.devices.iter_mut().zip(&later.devices) {
            sum.live_bytes += device.live_bytes;
            sum.live_blocks += device.live_blocks;
            sum.peak_bytes = sum.peak_bytes.max(device.peak_bytes);
        }
    }
}
