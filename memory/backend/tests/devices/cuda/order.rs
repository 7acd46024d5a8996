//! Tests the order of work.

use std::ptr::null_mut;

use crossdock_plugin_api::Device;

use super::{GPU, backend, content};
use crate::common::{copy, table};

#[test]
fn copies_of_any_size_survive_a_round_trip() {
    let Some(backend) = backend("copies_of_any_size_survive_a_round_trip") else { return };
    let account = backend.account("test");
    let t = table(&account);
    for bytes in [0, 1, 63, 64, 65, 4096, (64 << 10) - 1, 64 << 10, (1 << 20) + 3, (20 << 20) + 7] {
        let source = content(bytes);
        let block = t.upload(GPU, &source).unwrap();
        assert_eq!(block.address as usize % 64, 0);
        assert!(t.host_address(GPU, block.address, bytes).is_null());
        assert_eq!(t.download(GPU, block.address, bytes).unwrap(), source, "{bytes} bytes");
        if bytes > 3 {
            let middle = t.download(GPU, block.address.wrapping_add(1), bytes - 2).unwrap();
            assert_eq!(middle, source[1..bytes - 1]);
        }
        t.free(block);
    }
    assert!(backend.leaks().is_empty());
    let copied = backend.ledger().copied();
    assert_eq!(copied.host_to_host.bytes, 0);
    assert_eq!(copied.host_to_device.copies, 10);
}

#[test]
fn stream_wait_orders_work_after_the_event() {
    let Some(backend) = backend("stream_wait_orders_work_after_the_event") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (first, second) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    const BYTES: usize = 1 << 20;
    for round in 0..20u8 {
        let from = t.alloc_aligned(GPU, BYTES, 64, first).unwrap();
        let to = t.alloc_aligned(GPU, BYTES, 64, second).unwrap();
        t.fill(first, from.address, round, BYTES).unwrap();
        let event = t.event_record(first).unwrap();
        assert!(!event.is_null());
        t.stream_wait(second, event).unwrap();
        t.copies(second, &[copy((GPU, to.address), (GPU, from.address), BYTES)]).unwrap();
        let used = t.event_record(second).unwrap();
        let mut target = vec![0xee; BYTES];
        t.copies(second, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, to.address), BYTES)]).unwrap();
        t.stream_synchronize(second).unwrap();
        assert!(target.iter().all(|byte| *byte == round), "round {round}");
        t.free_after(from, &[used], 0);
        t.free_with(to, 0);
        // The first query may still report a pending event, but the query after the wait must not.
        assert!(t.event_query(used).unwrap() <= 1);
        t.event_synchronize(used).unwrap();
        assert_eq!(t.event_query(used), Ok(1));
        t.event_destroy(event);
        t.event_destroy(used);
    }
    t.stream_destroy(first);
    t.stream_destroy(second);
    assert!(backend.leaks().is_empty());
}

#[test]
fn stream_wait_raw_orders_work_after_an_external_event() {
    let Some(backend) = backend("stream_wait_raw_orders_work_after_an_external_event") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (first, second) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    const BYTES: usize = 1 << 16;
    let block = t.alloc_aligned(GPU, BYTES, 64, first).unwrap();
    t.fill(first, block.address, 7, BYTES).unwrap();
    let event = t.event_record(first).unwrap();
    let sync_event = t.event_raw(event);
    assert!(!sync_event.is_null());
    t.stream_wait_raw(second, sync_event).unwrap();
    let mut target = vec![0; BYTES];
    t.copies(second, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, block.address), BYTES)]).unwrap();
    assert!(target.iter().all(|byte| *byte == 7));
    let used = t.event_record(second).unwrap();
    t.free_after(block, &[used], 0);
    let error = t.stream_wait_raw(second, (&raw mut *Box::leak(Box::new(null_mut::<u8>()))).cast());
    assert!(error.unwrap_err().message().contains("points to a NULL event"));
    t.event_destroy(event);
    t.event_destroy(used);
    t.stream_destroy(first);
    t.stream_destroy(second);
}

#[test]
fn host_stream_waits_for_an_event() {
    let Some(backend) = backend("host_stream_waits_for_an_event") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 1 << 20;
    let block = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    let pinned = t.alloc_pinned(BYTES).unwrap();
    for round in 0..10u8 {
        t.fill(stream, block.address, round, BYTES).unwrap();
        t.copies(stream, &[copy((Device::CPU, pinned.address), (GPU, block.address), BYTES)]).unwrap();
        let event = t.event_record(stream).unwrap();
        t.stream_wait(t.stream_default(Device::CPU).unwrap(), event).unwrap();
        // SAFETY: the block is live, and its last writer has completed.
        let target = unsafe { std::slice::from_raw_parts(pinned.address, BYTES) };
        assert!(target.iter().all(|byte| *byte == round));
        t.event_destroy(event);
    }
    t.free_with(block, 0);
    t.free_with(pinned, 0);
    t.stream_destroy(stream);
}
