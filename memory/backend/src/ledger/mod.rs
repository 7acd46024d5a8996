//! The ledger: allocations and copies by account and device.

mod counters;
mod sync;

use std::fmt;
use std::ops::AddAssign;

use crossdock_plugin_api::Device;

pub(crate) use counters::{AccountCounters, Ledger};

/// A snapshot of the ledger. The counters of a busy backend are read one after another, not all at
/// the same moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// The open accounts in the order in which they were opened, then the sums of the closed
    /// accounts by name.
    pub accounts: Vec<AccountUse>,
    /// Bytes cached in the pools. They belong to no account.
    pub cached_bytes: u64,
    /// Bytes of foreign memory that plugins handed over and that are charged to the budget, by
    /// account. Empty if there is no budget.
    pub foreign: Vec<(String, u64)>,
}

/// Allocations, copies and launches of one account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountUse {
    /// The name of the account.
    pub name: String,
    /// An entry for each host device, and for each CUDA device that the account has used, in the
    /// order of the backend's devices.
    pub devices: Vec<DeviceUse>,
    /// Copies, without fills.
    pub copied: CopyTraffic,
    /// Number of kernels launched.
    pub launches: u64,
}

/// Allocations of one account on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device.
    pub device: Device,
    /// Sum of the bytes requested for the live blocks.
    pub live_bytes: u64,
    /// Number of live blocks.
    pub live_blocks: u64,
    /// Maximum of `live_bytes` so far.
    pub peak_bytes: u64,
    /// Number of streams that were created or adopted, and have not been destroyed.
    pub live_streams: u64,
    /// Number of events that were recorded and have not been destroyed. Host devices have no
    /// events.
    pub live_events: u64,
}

/// Copies by direction. "Device" means any device whose memory the host cannot access, including
/// the test device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyTraffic {
    /// Host to device.
    pub host_to_device: Traffic,
    /// Device to host.
    pub device_to_host: Traffic,
    /// Device to device.
    pub device_to_device: Traffic,
    /// Host to host.
    pub host_to_host: Traffic,
}

/// Copies in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of bytes copied.
    pub bytes: u64,
    /// Number of copies.
    pub copies: u64,
}

/// Blocks, streams and events that an account has not released on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Name of the account.
    pub account: String,
    /// The device.
    pub device: Device,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of streams.
    pub streams: u64,
    /// Number of events.
    pub events: u64,
    /// Number of references to the host that keep a plugin instance from being destroyed. The host
    /// sets this number; the backend leaves it at 0.
    pub references: u64,
}

impl LedgerSnapshot {
    /// Number of bytes in live blocks, summed over all accounts and devices.
    pub fn live_bytes(&self) -> u64 {
        self.accounts.iter().flat_map(|account| &account.devices).map(|device| device.live_bytes).sum()
    }

    /// Copies summed over all accounts.
    pub fn copied(&self) -> CopyTraffic {
        let mut sum = CopyTraffic::default();
        self.accounts.iter().for_each(|account| sum += account.copied);
        sum
    }

    /// Lists everything that was not released, by account and device.
    pub fn leaks(&self) -> Vec<Leak> {
        let of_account = |account: &AccountUse| {
            let name = account.name.clone();
            let leaking =
                account.devices.iter().filter(|d| d.live_blocks + d.live_streams + d.live_events > 0);
            leaking
                .map(|d| Leak {
                    account: name.clone(),
                    device: d.device,
                    bytes: d.live_bytes,
                    blocks: d.live_blocks,
                    streams: d.live_streams,
                    events: d.live_events,
                    references: 0,
                })
                .collect::<Vec<_>>()
        };
        self.accounts.iter().flat_map(of_account).collect()
    }
}

impl CopyTraffic {
    /// Returns the copies that were made after `earlier` was read.
    pub fn since(self, earlier: CopyTraffic) -> CopyTraffic {
        CopyTraffic {
            host_to_device: self.host_to_device.since(earlier.host_to_device),
            device_to_host: self.device_to_host.since(earlier.device_to_host),
            device_to_device: self.device_to_device.since(earlier.device_to_device),
            host_to_host: self.host_to_host.since(earlier.host_to_host),
        }
    }

    /// Number of bytes copied in all four directions.
    pub fn bytes(&self) -> u64 {
        let CopyTraffic { host_to_device, device_to_host, device_to_device, host_to_host } = self;
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

impl AddAssign for CopyTraffic {
    fn add_assign(&mut self, other: Self) {
        self.host_to_device += other.host_to_device;
        self.device_to_host += other.device_to_host;
        self.device_to_device += other.device_to_device;
        self.host_to_host += other.host_to_host;
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Leak { account, device, bytes, blocks, streams, events, references } = self;
        let count = |n: u64, noun: &str| match n {
            0 => None,
            1 => Some(format!("1 {noun}")),
            n => Some(format!("{n} {noun}s")),
        };
        let blocks = count(*blocks, "block").map(|blocks| format!("{bytes} bytes in {blocks}"));
        let parts = [blocks, count(*streams, "stream"), count(*events, "event")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match count(*references, "reference") {
            Some(references) => write!(f, "'{account}' holds {references} to its host, and is not destroyed"),
            None => write!(f, "'{account}' holds {} on {device}", parts.join(", ")),
        }
    }
}

impl AccountUse {
    /// Adds the counters of another account with the same name.
    fn absorb(&mut self, later: &AccountUse) {
        self.copied += later.copied;
        self.launches += later.launches;
        for device in &later.devices {
            let Some(sum) = self.devices.iter_mut().find(|sum| sum.device == device.device) else {
                self.devices.push(*device);
                continue;
            };
            sum.live_bytes += device.live_bytes;
            sum.live_blocks += device.live_blocks;
            sum.live_streams += device.live_streams;
            sum.live_events += device.live_events;
            sum.peak_bytes = sum.peak_bytes.max(device.peak_bytes);
        }
    }
}
