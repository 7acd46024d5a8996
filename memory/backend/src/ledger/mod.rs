//! Who holds how many bytes on which device, and what was moved for them.

mod books;
mod sync;

use std::fmt;
use std::ops::AddAssign;

use crossdock_plugin_api::Device;

pub(crate) use books::{Books, Page};

/// The books at one moment. Counters of a busy backend are read one after the other, not all at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// The accounts that are open, in the order in which they were opened, then one for each name that was closed,
    /// summed up.
    pub accounts: Vec<AccountUse>,
    /// Bytes that the pools keep for later. Nobody holds them.
    pub cached_bytes: u64,
    /// Bytes in batches that plugins handed over in memory of their own, which count against the budget, by account. Without a budget
    /// nobody asks.
    pub outside: Vec<(String, u64)>,
}

/// What one account holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountUse {
    /// The name that it was opened under.
    pub name: String,
    /// For each device of the backend, in its order.
    pub devices: Vec<DeviceUse>,
    /// What was copied. Fills are no copies.
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
    /// Streams that were made or adopted and not destroyed.
    pub live_streams: u64,
    /// Events that were recorded and not destroyed. On devices of the host there are none.
    pub live_events: u64,
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

/// What an account has not given back.
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
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// References to the host, for which a plugin's instance is not destroyed. The host counts them.
    pub references: u64,
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

    /// All that is not given back, by account and device.
    pub fn leaks(&self) -> Vec<Leak> {
        let of_account = |account: &AccountUse| {
            let name = account.name.clone();
            let held = account.devices.iter().filter(|d| d.live_blocks + d.live_streams + d.live_events > 0);
            held.map(|d| Leak {
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
        let Leak { account, device, bytes, blocks, streams, events, references } = self;
        let some = |n: u64, what: &str| match n {
            0 => None,
            1 => Some(format!("1 {what}")),
            n => Some(format!("{n} {what}s")),
        };
        let blocks = some(*blocks, "block").map(|blocks| format!("{bytes} bytes in {blocks}"));
        let held = [blocks, some(*streams, "stream"), some(*events, "event")];
        let held: Vec<_> = held.into_iter().flatten().collect();
        match some(*references, "reference") {
            Some(references) => write!(f, "'{account}' holds {references} to its host, and is not destroyed"),
            None => write!(f, "'{account}' holds {} on {device}", held.join(", ")),
        }
    }
}

impl AccountUse {
    /// Adds what another account of the same name has done.
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
