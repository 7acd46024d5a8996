//! Tests a backend's budget, its ledger, injected faults, and the lifetimes of its objects.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::common::{add_one, copy, table};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{Code, Device};

#[test]
fn ledger_is_empty_after_all_frees_and_keeps_the_peak() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("arrow-ipc");
    let memory = table(&account);
    let blocks = [(Device::CPU, 1000), (Device::CPU, 24), (Device::UNTOUCHABLE, 77)];
    let blocks = blocks.map(|(device, bytes)| memory.alloc(device, bytes).unwrap());
    let usage = account.usage();
    assert_eq!(
        usage.devices.iter().map(|d| (d.live_bytes, d.live_blocks)).collect::<Vec<_>>(),
        [(1024, 2), (77, 1)]
    );
    assert_eq!(backend.ledger().live_bytes(), 1101);
    blocks.into_iter().for_each(|block| memory.free(block));
    let usage = account.usage();
    assert_eq!(
        usage.devices.iter().map(|d| (d.live_bytes, d.live_blocks)).collect::<Vec<_>>(),
        [(0, 0), (0, 0)]
    );
    assert_eq!(usage.devices.iter().map(|d| d.peak_bytes).collect::<Vec<_>>(), [1024, 77]);
    assert!(backend.leaks().is_empty() && backend.ledger().cached_bytes > 0);
    assert!(backend.trim() > 0 && backend.ledger().cached_bytes == 0);
}

#[test]
fn leak_report_names_the_dropped_account() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("leaky");
    let blocks = [Device::CPU, Device::UNTOUCHABLE].map(|device| table(&account).alloc(device, 500).unwrap());
    drop(account);
    let names: Vec<_> = backend.leaks().iter().map(ToString::to_string).collect();
    let expected =
        ["cpu", "untouchable"].map(|device| format!("'leaky' holds 500 bytes in 1 block on {device}"));
    assert_eq!(names, expected);
    // Any account can free a block. The freed bytes count for the account that allocated it.
    let other = backend.account("other");
    blocks.into_iter().for_each(|block| table(&other).free(block));
    assert!(backend.leaks().is_empty());
}

#[test]
fn leak_report_counts_leaked_streams() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("leaky");
    let memory = table(&account);
    let (first, second) =
        (memory.stream_create(Device::CPU).unwrap(), memory.stream_create(Device::CPU).unwrap());
    let block = memory.alloc(Device::CPU, 7).unwrap();
    let leaks = || backend.leaks().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(leaks(), ["'leaky' holds 7 bytes in 1 block, 2 streams on cpu"]);
    memory.free(block);
    memory.stream_destroy(first);
    assert_eq!(leaks(), ["'leaky' holds 1 stream on cpu"]);
    assert_eq!(account.usage().devices.first().unwrap().live_streams, 1);
    memory.stream_destroy(second);
    assert_eq!(leaks(), [""; 0]);
}

#[test]
fn sums_closed_accounts_by_name() {
    let backend = Backend::builder().build();
    for _ in 0..3 {
        let account = backend.account("plugin");
        let memory = table(&account);
        let block = memory.upload(Device::CPU, &[1; 100]).unwrap();
        memory.free(block);
    }
    let ledger = backend.ledger();
    assert_eq!(ledger.accounts.len(), 1);
    assert_eq!(ledger.accounts[0].copied.host_to_host.bytes, 300);
    assert_eq!(ledger.accounts[0].devices[0].peak_bytes, 100);
}

#[test]
fn error_names_account_size_limit_and_allocations() {
    let backend = Backend::builder().limit_bytes(1000).untouchable(true).build();
    let (first, second) = (backend.account("first"), backend.account("second"));
    let block = table(&first).alloc(Device::UNTOUCHABLE, 900).unwrap();
    let error = table(&second).alloc(Device::CPU, 101).err().unwrap();
    assert_eq!(error.code(), Code::OUT_OF_MEMORY);
    assert_eq!(
        error.message(),
        "'second' asked for 101 bytes on cpu: the limit of 1000 bytes leaves 100; \
         'first' holds 900 bytes in 1 block on untouchable"
    );
    let rest = table(&second).alloc(Device::CPU, 100).unwrap();
    table(&first).free(block);
    table(&second).free(rest);
}

#[test]
fn trims_pools_when_the_budget_is_exhausted() {
    let backend = Backend::builder().limit_bytes(1 << 20).untouchable(true).build();
    let account = backend.account("test");
    let memory = table(&account);
    let small: Vec<_> = (0..512).map(|_| memory.alloc(Device::UNTOUCHABLE, 1024).unwrap()).collect();
    small.into_iter().for_each(|block| memory.free(block));
    assert_eq!(backend.ledger().cached_bytes, 512 << 10);
    let large = memory.alloc(Device::CPU, 1 << 20).unwrap();
    assert_eq!(backend.ledger().cached_bytes, 0);
    memory.free(large);
}

#[test]
fn allocation_of_excessive_size_returns_out_of_memory() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("test");
    let memory = table(&account);
    for device in [Device::CPU, Device::UNTOUCHABLE] {
        for bytes in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize, 1 << 60] {
            let error = memory.alloc(device, bytes).err().unwrap();
            assert_eq!(error.code(), Code::OUT_OF_MEMORY);
            assert!(
                error.message().contains(&format!("'test' asked for {bytes} bytes on {device}")),
                "{error}"
            );
        }
    }
    assert_eq!(memory.alloc_pinned(usize::MAX).err().unwrap().code(), Code::OUT_OF_MEMORY);
}

#[test]
fn fault_plan_fails_the_nth_operation() {
    let faults = Faults::new();
    let backend = Backend::builder().faults(faults.clone()).build();
    let account = backend.account("test");
    let memory = table(&account);
    faults.fail(Operation::Allocate, 2);
    let block = memory.alloc(Device::CPU, 8).unwrap();
    let error = memory.alloc(Device::CPU, 8).err().unwrap();
    assert!(error.message().contains("allocation 2 was set to fail"), "{error}");
    memory.free(memory.alloc(Device::CPU, 8).unwrap());

    faults.fail(Operation::Copy, 1);
    let (to, from) = ((Device::CPU, block.address), (Device::CPU, block.address.cast_const()));
    let error = memory.copies(null_mut(), &[copy(to, from, 8)]).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::DEVICE, "copy number 1 was set to fail by the fault plan")
    );
    assert_eq!(account.usage().copied.bytes(), 0);
    memory.copies(null_mut(), &[copy(to, from, 8)]).unwrap();

    faults.fail(Operation::Launch, 1);
    assert!(memory.launch(null_mut(), &add_one(), &[]).unwrap_err().message().contains("launch number 1"));
    faults.fail(Operation::Launch, 1);
    faults.fail(Operation::Launch, 0);
    assert!(memory.launch(null_mut(), &add_one(), &[]).unwrap_err().message().contains("'add_one' failed"));
    assert_eq!([Operation::Allocate, Operation::Copy, Operation::Launch].map(|o| faults.count(o)), [3, 2, 2]);
    memory.free(block);
}

#[test]
fn reuses_pooled_blocks() {
    let backend = Backend::builder().build();
    let account = backend.account("test");
    let memory = table(&account);
    let first = memory.alloc(Device::CPU, 1 << 20).unwrap();
    let address = first.address;
    memory.free(first);
    assert_eq!(backend.ledger().cached_bytes, 1 << 20);
    let again = memory.alloc(Device::CPU, 1 << 20).unwrap();
    assert_eq!(again.address, address);
    memory.free(again);

    let account = Backend::builder().pool_bytes(0).build().account("unpooled");
    table(&account).free(table(&account).alloc(Device::CPU, 1 << 20).unwrap());
    let account = Backend::builder().pool_bytes(1 << 10).build().account("capped");
    table(&account).free(table(&account).alloc(Device::CPU, 1 << 20).unwrap());
}

#[test]
fn block_outlives_its_account_and_backend() {
    let backend = Backend::builder().build();
    let account = backend.account("test");
    let block = table(&account).alloc(Device::CPU, 100).unwrap();
    let other = Backend::builder().build().account("another host");
    drop((account, backend));
    // SAFETY: the block is live and has 100 bytes.
    unsafe { block.address.write_bytes(1, 100) };
    table(&other).free(block);
}

#[test]
fn rejects_streams_of_another_backend() {
    let (one, two) =
        (Backend::builder().untouchable(true).build(), Backend::builder().untouchable(true).build());
    let (account, other) = (one.account("first"), two.account("second"));
    let stream = table(&other).stream_default(Device::CPU).unwrap();
    let error = table(&account).stream_synchronize(stream).unwrap_err();
    assert!(error.message().contains("belongs to another host"), "{error}");
    let block = table(&other).alloc(Device::UNTOUCHABLE, 8).unwrap();
    assert!(table(&account).download(Device::UNTOUCHABLE, block.address, 8).is_err());
    assert_eq!((one.ledger().live_bytes(), two.ledger().live_bytes()), (0, 8));
    table(&other).free(block);
}

#[test]
fn counts_correctly_with_concurrent_threads() {
    let backend = Backend::builder().limit_bytes(4 << 20).untouchable(true).build();
    let account = backend.account("busy");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let account = Arc::clone(&account);
            scope.spawn(move || {
                let memory = table(&account);
                for round in 0..300usize {
                    let device = if round % 3 == 0 { Device::UNTOUCHABLE } else { Device::CPU };
                    let content = vec![thread; 100 + round * 41 % 9000];
                    let block = memory.upload(device, &content).unwrap();
                    assert_eq!(memory.download(device, block.address, content.len()).unwrap(), content);
                    memory.free(block);
                }
            });
        }
    });
    assert!(backend.leaks().is_empty());
    let copied = account.usage().copied;
    assert_eq!(copied.host_to_device.copies + copied.host_to_host.copies / 2, 1200);
}
