//! The ledger's books: pages that plugins write on several threads, while accounts are closed and somebody reads them all.

#[path = "../../../../memory/backend/src/ledger/books.rs"]
#[expect(dead_code, reason = "what no model needs of it")]
mod books;
mod sync;

use std::sync::Arc;

use loom::thread;

use crate::model;
use books::{Books, Page};

/// As the backend's, with numbers in the place of devices.
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
struct Copied {
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
    copied: Copied,
    launches: u64,
}

impl AccountUse {
    fn absorb(&mut self, later: &AccountUse) {
        self.copied.host_to_device.bytes += later.copied.host_to_device.bytes;
        self.launches += later.launches;
    }
}

const NAME: &str = "plugin";

/// One account's page, of one device.
fn page() -> (Arc<Books>, Arc<Page>) {
    let books = Arc::new(Books::default());
    let page = books.open(NAME, std::iter::once(0));
    (books, page)
}

fn on(page: &Page, index: usize) -> DeviceUse {
    page.read().devices[index]
}

#[test]
fn what_two_hold_at_once_is_counted_and_no_peak_is_missed() {
    model(5, || {
        let (_, page) = page();
        let other = thread::spawn({
            let page = page.clone();
            move || page.took(0, 2)
        });
        page.took(0, 1);
        other.join().unwrap();
        let DeviceUse { device, live_bytes, live_blocks, peak_bytes, .. } = on(&page, 0);
        assert_eq!((device, live_bytes, live_blocks, peak_bytes), (0, 3, 2, 3));
    });
}

#[test]
fn who_reads_while_blocks_go_to_and_fro_sees_no_more_than_there_can_be() {
    model(3, || {
        let (_, page) = page();
        page.took(0, 4);
        let other = thread::spawn({
            let page = page.clone();
            move || {
                page.gave_back(0, 4);
                page.took(0, 2);
            }
        });
        let reader = thread::spawn({
            let page = page.clone();
            move || on(&page, 0)
        });
        page.took(0, 1);
        page.gave_back(0, 1);
        let seen = reader.join().unwrap();
        other.join().unwrap();
        assert!(seen.live_bytes <= 5 && seen.live_blocks <= 2, "{} in {}", seen.live_bytes, seen.live_blocks);
        let DeviceUse { live_bytes, live_blocks, peak_bytes, .. } = on(&page, 0);
        assert_eq!((live_bytes, live_blocks), (2, 1));
        assert!((4..=5).contains(&peak_bytes), "{peak_bytes}");
    });
}

#[test]
fn an_account_is_counted_once_whenever_it_is_closed() {
    model(5, || {
        let books = Arc::new(Books::default());
        let pages: Vec<_> = (0..2).map(|_| books.open(NAME, std::iter::once(0))).collect();
        for page in &pages {
            page.copied(true, false, 1);
            page.launched();
        }
        let closers: Vec<_> = pages
            .into_iter()
            .map(|page| {
                let books = books.clone();
                thread::spawn(move || books.close(&page))
            })
            .collect();
        let sums = |books: &Books| {
            let accounts = books.read();
            assert!(accounts.iter().all(|account| account.name == NAME));
            let launches: u64 = accounts.iter().map(|account| account.launches).sum();
            (accounts.len(), accounts.iter().map(|a| a.copied.host_to_device.bytes).sum::<u64>(), launches)
        };
        let (_, bytes, launches) = sums(&books);
        assert_eq!((bytes, launches), (2, 2), "an account is nowhere, or in two places");
        closers.into_iter().for_each(|closer| closer.join().unwrap());
        assert_eq!(sums(&books), (1, 2, 2));
    });
}

#[test]
fn devices_that_are_found_later_get_a_place_each_before_anything_is_counted_there() {
    model(5, || {
        let (_, page) = page();
        let take = |page: &Page| {
            page.extend(|| vec![1]);
            page.took(1, 1);
        };
        let other = thread::spawn({
            let page = page.clone();
            move || take(&page)
        });
        take(&page);
        other.join().unwrap();
        let devices = page.read().devices;
        assert_eq!(devices.iter().map(|device| device.device).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((devices[1].live_bytes, devices[1].live_blocks), (2, 2));
    });
}
