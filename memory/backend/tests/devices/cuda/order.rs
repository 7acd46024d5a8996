//! What comes after what.

use std::ptr::null_mut;

use crossdock_plugin_api::Device;

use super::{GPU, backend, content};
use crate::common::{copy, table};

#[test]
fn bytes_go_there_and_back_whatever_their_number_and_place() {
    let Some(backend) = backend("bytes_go_there_and_back") else { return };
    let account = backend.account("test");
    let t = table(&account);
    for bytes in [0, 1, 63, 64, 65, 4096, (64 << 10) - 1, 64 << 10, (1 << 20) + 3, (20 << 20) + 7] {
        let sent = content(bytes);
        let held = t.upload(GPU, &sent).unwrap();
        assert_eq!(held.address as usize % 64, 0);
        assert!(t.host_address(GPU, held.address, bytes).is_null());
        assert_eq!(t.download(GPU, held.address, bytes).unwrap(), sent, "{bytes} bytes");
        if bytes > 3 {
            let middle = t.download(GPU, held.address.wrapping_add(1), bytes - 2).unwrap();
            assert_eq!(middle, sent[1..bytes - 1]);
        }
        t.free(held);
    }
    assert!(backend.leaks().is_empty());
    let copied = backend.ledger().copied();
    assert_eq!(copied.host_to_host.bytes, 0);
    assert_eq!(copied.host_to_device.copies, 10);
}

#[test]
fn a_stream_that_waits_for_an_event_sees_what_came_before_it() {
    let Some(backend) = backend("a_stream_that_waits") else { return };
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
        let mut seen = vec![0xee; BYTES];
        t.copies(second, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, to.address), BYTES)]).unwrap();
        t.stream_synchronize(second).unwrap();
        assert!(seen.iter().all(|byte| *byte == round), "round {round}");
        t.free_after(from, &[used], 0);
        t.free_with(to, 0);
        // A query may be behind; a wait is not.
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
fn a_strangers_event_is_waited_for_through_the_pointer_to_its_handle() {
    let Some(backend) = backend("a_strangers_event") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (first, second) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    const BYTES: usize = 1 << 16;
    let held = t.alloc_aligned(GPU, BYTES, 64, first).unwrap();
    t.fill(first, held.address, 7, BYTES).unwrap();
    let event = t.event_record(first).unwrap();
    let sync_event = t.event_raw(event);
    assert!(!sync_event.is_null());
    t.stream_wait_raw(second, sync_event).unwrap();
    let mut seen = vec![0; BYTES];
    t.copies(second, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, held.address), BYTES)]).unwrap();
    assert!(seen.iter().all(|byte| *byte == 7));
    let used = t.event_record(second).unwrap();
    t.free_after(held, &[used], 0);
    let refused = t.stream_wait_raw(second, (&raw mut *Box::leak(Box::new(null_mut::<u8>()))).cast());
    assert!(refused.unwrap_err().message().contains("points at a NULL event"));
    t.event_destroy(event);
    t.event_destroy(used);
    t.stream_destroy(first);
    t.stream_destroy(second);
}

#[test]
fn the_hosts_stream_waits_for_an_event_before_it_goes_on() {
    let Some(backend) = backend("the_hosts_stream_waits") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 1 << 20;
    let held = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    let pinned = t.alloc_pinned(BYTES).unwrap();
    for round in 0..10u8 {
        t.fill(stream, held.address, round, BYTES).unwrap();
        t.copies(stream, &[copy((Device::CPU, pinned.address), (GPU, held.address), BYTES)]).unwrap();
        let event = t.event_record(stream).unwrap();
        t.stream_wait(t.stream_default(Device::CPU).unwrap(), event).unwrap();
        // SAFETY: a live block of the host's, whose last writer has been waited for.
        let seen = unsafe { std::slice::from_raw_parts(pinned.address, BYTES) };
        assert!(seen.iter().all(|byte| *byte == round));
        t.event_destroy(event);
    }
    t.free_with(held, 0);
    t.free_with(pinned, 0);
    t.stream_destroy(stream);
}
