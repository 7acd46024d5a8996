//! Budget, ledger, faults and lifetimes of a whole backend.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::common::{add_one, copy, table};
use crossdock_memory_backend::{Backend, Faults, Operation};
use crossdock_plugin_api::{Code, Device};

#[test]
fn the_ledger_is_zero_after_all_blocks_went_back_and_remembers_the_peak() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("arrow-ipc");
    let memory = table(&account);
    let blocks = [(Device::CPU, 1000), (Device::CPU, 24), (Device::UNTOUCHABLE, 77)];
    let held = blocks.map(|(device, bytes)| memory.alloc(device, bytes).unwrap());
    let usage = account.usage();
    assert_eq!(
        usage.devices.iter().map(|d| (d.live_bytes, d.live_blocks)).collect::<Vec<_>>(),
        [(1024, 2), (77, 1)]
    );
    assert_eq!(backend.ledger().live_bytes(), 1101);
    held.into_iter().for_each(|block| memory.free(block));
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
fn a_leak_is_named_by_account_and_device_even_when_its_account_is_gone() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("leaky");
    let held = [Device::CPU, Device::UNTOUCHABLE].map(|device| table(&account).alloc(device, 500).unwrap());
    drop(account);
    let names: Vec<_> = backend.leaks().iter().map(ToString::to_string).collect();
    let expected =
        ["cpu", "untouchable"].map(|device| format!("'leaky' holds 500 bytes in 1 block on {device}"));
    assert_eq!(names, expected);
    // Freeing goes to the account that allocated, through whichever memory it comes.
    let other = backend.account("other");
    held.into_iter().for_each(|block| table(&other).free(block));
    assert!(backend.leaks().is_empty());
}

#[test]
fn streams_that_are_left_are_named_too() {
    let backend = Backend::builder().untouchable(true).build();
    let account = backend.account("leaky");
    let memory = table(&account);
    let (first, second) =
        (memory.stream_create(Device::CPU).unwrap(), memory.stream_create(Device::CPU).unwrap());
    let block = memory.alloc(Device::CPU, 7).unwrap();
    let said = || backend.leaks().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said(), ["'leaky' holds 7 bytes in 1 block, 2 streams on cpu"]);
    memory.free(block);
    memory.stream_destroy(first);
    assert_eq!(said(), ["'leaky' holds 1 stream on cpu"]);
    assert_eq!(account.usage().devices.first().unwrap().live_streams, 1);
    memory.stream_destroy(second);
    assert_eq!(said(), [""; 0]);
}

#[test]
fn closed_accounts_are_summed_up_under_their_name() {
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
fn a_refusal_says_who_asked_for_how_much_what_the_limit_is_and_who_holds_what() {
    let backend = Backend::builder().limit_bytes(1000).untouchable(true).build();
    let (first, second) = (backend.account("first"), backend.account("second"));
    let held = table(&first).alloc(Device::UNTOUCHABLE, 900).unwrap();
    let error = table(&second).alloc(Device::CPU, 101).err().unwrap();
    assert_eq!(error.code(), Code::OUT_OF_MEMORY);
    assert_eq!(
        error.message(),
        "'second' asked for 101 bytes on cpu: the limit of 1000 bytes leaves 100; \
         'first' holds 900 bytes in 1 block on untouchable"
    );
    let rest = table(&second).alloc(Device::CPU, 100).unwrap();
    table(&first).free(held);
    table(&second).free(rest);
}

#[test]
fn what_the_pools_keep_makes_room_when_the_budget_needs_it() {
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
fn sizes_that_no_machine_has_are_out_of_memory() {
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
fn the_nth_allocation_copy_or_launch_fails_as_planned() {
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
    assert_eq!([Operation::Allocate, Operation::Copy, Operation::Launch].map(|o| faults.seen(o)), [3, 2, 2]);
    memory.free(block);
}

#[test]
fn a_pooled_block_comes_back_to_whoever_asks_next() {
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
fn a_block_outlives_the_account_and_the_backend_that_made_it() {
    let backend = Backend::builder().build();
    let account = backend.account("test");
    let held = table(&account).alloc(Device::CPU, 100).unwrap();
    let other = Backend::builder().build().account("another host");
    drop((account, backend));
    // SAFETY: the block is live, and of 100 bytes.
    unsafe { held.address.write_bytes(1, 100) };
    table(&other).free(held);
}

#[test]
fn two_backends_share_nothing_and_refuse_each_others_streams() {
    let (one, two) =
        (Backend::builder().untouchable(true).build(), Backend::builder().untouchable(true).build());
    let (here, there) = (one.account("here"), two.account("there"));
    let stream = table(&there).stream_default(Device::CPU).unwrap();
    let error = table(&here).stream_synchronize(stream).unwrap_err();
    assert!(error.message().contains("made by another host's memory"), "{error}");
    let block = table(&there).alloc(Device::UNTOUCHABLE, 8).unwrap();
    assert!(table(&here).download(Device::UNTOUCHABLE, block.address, 8).is_err());
    assert_eq!((one.ledger().live_bytes(), two.ledger().live_bytes()), (0, 8));
    table(&there).free(block);
}

#[test]
fn threads_share_one_account_and_the_books_come_out_even() {
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
