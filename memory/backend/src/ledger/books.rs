//! The counters themselves: written by everybody at once, read when somebody asks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicI64, AtomicU64, Mutex, MutexGuard, OnceLock};
use super::{AccountUse, Copied, Device, DeviceUse, Traffic};

/// One account's counters.
pub(crate) struct Page {
    name: String,
    devices: Vec<DeviceCounters>,
    /// Those that are found when they are first asked for, numbered on.
    later: OnceLock<Vec<DeviceCounters>>,
    /// Host to device, device to host, device to device, host to host.
    copied: [TrafficCounters; 4],
    launches: AtomicU64,
}

struct DeviceCounters {
    device: Device,
    bytes: AtomicU64,
    blocks: AtomicU64,
    peak_bytes: AtomicU64,
    /// What one account makes another one may end: then they are below 0.
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

impl Page {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes room for devices that were found later.
    pub(crate) fn extend(&self, devices: impl FnOnce() -> Vec<Device>) {
        self.later.get_or_init(|| devices().into_iter().map(DeviceCounters::new).collect());
    }

    fn of(&self, device_index: usize) -> Option<&DeviceCounters> {
        match device_index.checked_sub(self.devices.len()) {
            None => self.devices.get(device_index),
            Some(later) => self.later.get()?.get(later),
        }
    }

    pub(crate) fn took(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.of(device_index) else { return };
        counters.blocks.fetch_add(1, Relaxed);
        let now = counters.bytes.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        // Read first: an allocation that sets no record then writes one counter less.
        if now > counters.peak_bytes.load(Relaxed) {
            counters.peak_bytes.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn gave_back(&self, device_index: usize, bytes: usize) {
        let Some(counters) = self.of(device_index) else { return };
        counters.blocks.fetch_sub(1, Relaxed);
        counters.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// So many more streams that the account made, or fewer.
    pub(crate) fn streams(&self, device_index: usize, more: i64) {
        if let Some(counters) = self.of(device_index) {
            counters.streams.fetch_add(more, Relaxed);
        }
    }

    /// The same of events.
    pub(crate) fn events(&self, device_index: usize, more: i64) {
        if let Some(counters) = self.of(device_index) {
            counters.events.fetch_add(more, Relaxed);
        }
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
            live_streams: u64::try_from(counters.streams.load(Relaxed)).unwrap_or(0),
            live_events: u64::try_from(counters.events.load(Relaxed)).unwrap_or(0),
        };
        AccountUse {
            name: self.name.clone(),
            devices: self.devices.iter().chain(self.later.get().into_iter().flatten()).map(device).collect(),
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
        let page = Arc::new(Page {
            name: name.to_string(),
            devices: devices.map(DeviceCounters::new).collect(),
            later: OnceLock::new(),
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

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
