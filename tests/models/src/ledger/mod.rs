//! Models the ledger. Several threads update its counters while accounts are closed and the ledger
//! is read.

#[path = "../../../../memory/backend/src/ledger/counters.rs"]
#[expect(dead_code, reason = "not used by the models")]
mod counters;
mod sync;

use std::sync::Arc;

use loom::thread;

use crate::model;
use counters::{AccountCounters, Ledger};

/// Replaces the device ids of the backend.
type Device = u32;

#[derive(Clone, Copy)]
struct DeviceUse {
    device: Device,
    live_bytes: u64,
    live_blocks: u64,
    peak_bytes: u64,
    #[expect(dead_code, reason = "counted as blocks are")]
    live_streams: u64,
    #[expect(dead_code, reason = "counted as blocks are")]
    live_events: u64,
}

#[derive(Clone, Copy)]
struct Traffic {
    bytes: u64,
    #[expect(dead_code, reason = "counted as bytes are")]
    copies: u64,
}

#[derive(Clone)]
struct CopyTraffic {
    host_to_device: Traffic,
    #[expect(dead_code, reason = "counted as the first is")]
    device_to_host: Traffic,
    #[expect(dead_code, reason = "counted as the first is")]
    device_to_device: Traffic,
    #[expect(dead_code, reason = "counted as the first is")]
    host_to_host: Traffic,
}

#[derive(Clone)]
struct AccountUse {
    name: String,
    devices: Vec<DeviceUse>,
    copied: CopyTraffic,
    launches: u64,
}

impl AccountUse {
    fn absorb(&mut self, later: &AccountUse) {
        self.copied.host_to_device.bytes += later.copied.host_to_device.bytes;
        self.launches += later.launches;
    }
}

const NAME: &str = "plugin";

/// A ledger with an account on one device.
fn account() -> (Arc<Ledger>, Arc<AccountCounters>) {
    let ledger = Arc::new(Ledger::default());
    let account = ledger.open(NAME, std::iter::once(0));
    (ledger, account)
}

fn device_use(account: &AccountCounters, index: usize) -> DeviceUse {
    account.read().devices[index]
}

#[test]
fn concurrent_blocks_are_counted_with_their_peak() {
    model(5, || {
        let (_, account) = account();
        let other = thread::spawn({
            let account = account.clone();
            move || account.add_block(0, 2)
        });
        account.add_block(0, 1);
        other.join().unwrap();
        let DeviceUse { device, live_bytes, live_blocks, peak_bytes, .. } = device_use(&account, 0);
        assert_eq!((device, live_bytes, live_blocks, peak_bytes), (0, 3, 2, 3));
    });
}

#[test]
fn readers_never_read_more_than_the_possible_maximum() {
    model(3, || {
        let (_, account) = account();
        account.add_block(0, 4);
        let other = thread::spawn({
            let account = account.clone();
            move || {
                account.remove_block(0, 4);
                account.add_block(0, 2);
            }
        });
        let reader = thread::spawn({
            let account = account.clone();
            move || device_use(&account, 0)
        });
        account.add_block(0, 1);
        account.remove_block(0, 1);
        let observed = reader.join().unwrap();
        other.join().unwrap();
        assert!(
            observed.live_bytes <= 5 && observed.live_blocks <= 2,
            "{} in {}",
            observed.live_bytes,
            observed.live_blocks
        );
        let DeviceUse { live_bytes, live_blocks, peak_bytes, .. } = device_use(&account, 0);
        assert_eq!((live_bytes, live_blocks), (2, 1));
        assert!((4..=5).contains(&peak_bytes), "{peak_bytes}");
    });
}

#[test]
fn closing_an_account_counts_it_exactly_once() {
    model(5, || {
        let ledger = Arc::new(Ledger::default());
        let accounts: Vec<_> = (0..2).map(|_| ledger.open(NAME, std::iter::once(0))).collect();
        for account in &accounts {
            account.add_copy(true, false, 1);
            account.add_launch();
        }
        let closers: Vec<_> = accounts
            .into_iter()
            .map(|account| {
                let ledger = ledger.clone();
                thread::spawn(move || ledger.close(&account))
            })
            .collect();
        let sums = |ledger: &Ledger| {
            let accounts = ledger.read();
            assert!(accounts.iter().all(|account| account.name == NAME));
            let launches: u64 = accounts.iter().map(|account| account.launches).sum();
            (accounts.len(), accounts.iter().map(|a| a.copied.host_to_device.bytes).sum::<u64>(), launches)
        };
        let (_, bytes, launches) = sums(&ledger);
        assert_eq!((bytes, launches), (2, 2), "an account is missing, or counted twice");
        closers.into_iter().for_each(|closer| closer.join().unwrap());
        assert_eq!(sums(&ledger), (1, 2, 2));
    });
}

#[test]
fn devices_are_added_before_their_first_block_is_counted() {
    model(5, || {
        let (_, account) = account();
        let add_block = |account: &AccountCounters| {
            account.add_devices(|| vec![1]);
            account.add_block(1, 1);
        };
        let other = thread::spawn({
            let account = account.clone();
            move || add_block(&account)
        });
        add_block(&account);
        other.join().unwrap();
        let devices = account.read().devices;
        assert_eq!(devices.iter().map(|device| device.device).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((devices[1].live_bytes, devices[1].live_blocks), (2, 2));
    });
}
