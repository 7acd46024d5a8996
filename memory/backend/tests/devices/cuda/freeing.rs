//! Blocks go back after their last use, and nobody waits for it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::ThreadId;

use crossdock_plugin_api::{Device, abi};

use super::{GPU, backend, content, skip};
use crate::common::{copy, table};

#[test]
fn a_block_that_another_stream_still_reads_is_not_handed_out_again() {
    let Some(backend) = backend("a_block_that_another_stream_still_reads") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (writer, reader) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    const BYTES: usize = 4 << 20;
    for (round, lent) in (0..16u8).zip([0, abi::FREE_LENT, 1 << 31].into_iter().cycle()) {
        let block = t.alloc_aligned(GPU, BYTES, 64, writer).unwrap();
        let copied = t.alloc_aligned(GPU, BYTES, 64, reader).unwrap();
        t.fill(writer, block.address, round, BYTES).unwrap();
        let written = t.event_record(writer).unwrap();
        t.stream_wait(reader, written).unwrap();
        for _ in 0..4 {
            t.copies(reader, &[copy((GPU, copied.address), (GPU, block.address), BYTES)]).unwrap();
        }
        // A stranger's use is not told: it is waited for all the same if the block was lent, or by a flag that nobody knows.
        let read = t.event_record(reader).unwrap();
        if lent == 0 {
            t.free_after(block, &[read], lent);
        } else {
            t.free_after(block, &[], lent);
        }
        // The next one takes the same memory, and writes over it at once.
        let next = t.alloc_aligned(GPU, BYTES, 64, writer).unwrap();
        t.fill(writer, next.address, 0xff, BYTES).unwrap();
        let mut seen = vec![0; BYTES];
        t.copies(reader, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, copied.address), BYTES)]).unwrap();
        assert!(seen.iter().all(|byte| *byte == round), "round {round}, flags {lent}");
        t.free_with(next, 0);
        t.free_with(copied, 0);
        t.event_destroy(written);
        t.event_destroy(read);
    }
    t.stream_destroy(writer);
    t.stream_destroy(reader);
    assert!(backend.leaks().is_empty());
}

#[test]
fn pinned_memory_may_be_given_back_while_a_copy_from_it_is_queued() {
    let Some(backend) = backend("pinned_memory_may_be_given_back") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 8 << 20;
    // Starts the device, before which there is nothing to pin memory for.
    let held = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    for round in 0..8u8 {
        let pinned = t.alloc_pinned(BYTES).unwrap();
        // SAFETY: a live block of the host's that nobody else uses.
        unsafe { std::ptr::write_bytes(pinned.address, round, BYTES) };
        t.copies(stream, &[copy((GPU, held.address), (Device::CPU, pinned.address), BYTES)]).unwrap();
        let read = t.event_record(stream).unwrap();
        t.free_after(pinned, &[read], 0);
        // A block of the same size, written at once: it must be another one while the copy is under way.
        let next = t.alloc_pinned(BYTES).unwrap();
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(next.address, 0xff, BYTES) };
        let mut seen = vec![0; BYTES];
        t.copies(stream, &[copy((Device::CPU, seen.as_mut_ptr()), (GPU, held.address), BYTES)]).unwrap();
        assert!(seen.iter().all(|byte| *byte == round), "round {round}");
        t.free_with(next, 0);
        t.event_destroy(read);
    }
    t.free_with(held, 0);
    t.stream_destroy(stream);
    assert!(backend.leaks().is_empty());
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_and_tell(data: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: each test below passes a sender of its own, once.
    let sender = unsafe { Box::from_raw(data.cast::<mpsc::Sender<std::thread::ThreadId>>()) };
    // Nobody listens any more where the test has failed.
    sender.send(std::thread::current().id()).unwrap_or_default();
}

#[test]
fn a_call_comes_once_after_its_events_and_at_once_where_there_are_none() {
    let Some(backend) = backend("a_call_comes_once") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let call_after = t.functions().call_after.unwrap();
    let (sender, receiver) = mpsc::channel();
    let data = || Box::into_raw(Box::new(sender.clone())).cast();
    // SAFETY: no events, and what the function expects.
    unsafe { call_after(t.raw(), std::ptr::null(), 0, abi::Callback(Some(count_and_tell)), data()) };
    assert_eq!(receiver.try_recv(), Ok(std::thread::current().id()));

    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 16 << 20;
    let held = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    for _ in 0..8 {
        t.fill(stream, held.address, 1, BYTES).unwrap();
        let event = t.event_record(stream).unwrap();
        // SAFETY: a live event, and what the function expects.
        unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(count_and_tell)), data()) };
        t.event_destroy(event);
    }
    for _ in 0..8 {
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
    assert_eq!(CALLS.load(Ordering::SeqCst), 9);
    t.free_with(held, 0);
    t.stream_destroy(stream);
}

/// Of a stranger's function: which thread it is not meant for, that it was called, that it may go on, and whether it was told so.
struct Held(ThreadId, mpsc::Sender<bool>, mpsc::Receiver<()>, mpsc::Sender<bool>);

unsafe extern "C" fn hold(data: *mut c_void) {
    // SAFETY: what the test passes, once.
    let held = unsafe { Box::from_raw(data.cast::<Held>()) };
    let is_elsewhere = std::thread::current().id() != held.0;
    held.1.send(is_elsewhere).unwrap();
    if is_elsewhere {
        let went_on = held.2.recv_timeout(std::time::Duration::from_secs(10)).is_ok();
        held.3.send(went_on).unwrap();
    }
}

#[test]
fn the_last_owner_does_not_wait_for_a_stranger_s_function() {
    const TEST: &str = "the_last_owner_does_not_wait_for_a_stranger_s_function";
    const BYTES: usize = 64 << 20;
    // A device that has done it all before the function is told of has it called at once.
    for _ in 0..20 {
        let Some(backend) = backend(TEST) else { return };
        let account = backend.account("test");
        let t = table(&account);
        let stream = t.stream_create(GPU).unwrap();
        let block = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
        (0..16).for_each(|_| t.fill(stream, block.address, 1, BYTES).unwrap());
        let event = t.event_record(stream).unwrap();
        let ((began, begins), (go, goes), (told, tells)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let held = Held(std::thread::current().id(), began, goes, told);
        let call_after = t.functions().call_after.unwrap();
        let data = Box::into_raw(Box::new(held)).cast();
        // SAFETY: a live event, and what the function expects.
        unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(hold)), data) };
        t.event_destroy(event);
        t.free(block);
        t.stream_destroy(stream);
        let is_elsewhere = begins.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        drop((account, backend));
        if is_elsewhere {
            go.send(()).ok();
            assert!(tells.recv().unwrap(), "the last owner waited");
            return;
        }
    }
    skip(TEST, "the device was always done before the function was told of");
}

#[test]
fn the_devices_memory_stays_flat_over_many_rounds() {
    let Some(backend) = backend("the_devices_memory_stays_flat") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let sent = content(1 << 20);
    // The host runs ahead of the device, so that some rounds' blocks are there at once.
    let rounds = |n: usize| {
        let round = |_| {
            let held: Vec<_> = (0..4).map(|_| t.upload(GPU, &sent).unwrap()).collect();
            held.into_iter().for_each(|held| t.free(held));
            backend.ledger().cached_bytes
        };
        (0..n).map(round).max().unwrap()
    };
    let (at_first, later) = (rounds(100), rounds(400));
    assert!(later <= at_first * 3 + (256 << 20), "pools keep up to {later} bytes, {at_first} at first");
    assert!(backend.leaks().is_empty());
    backend.trim();
    assert_eq!(backend.ledger().cached_bytes, 0, "nothing is in use, so that nothing need be kept");
}

#[test]
fn streams_and_events_that_are_left_are_named() {
    let Some(backend) = backend("streams_and_events_that_are_left") else { return };
    let account = backend.account("leaky");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    let held = t.alloc_aligned(GPU, 1 << 20, 64, stream).unwrap();
    t.fill(stream, held.address, 1, 1 << 20).unwrap();
    let events = [t.event_record(stream).unwrap(), t.event_record(stream).unwrap()];
    assert!(events.iter().all(|event| !event.is_null()));
    t.stream_synchronize(stream).unwrap();
    t.free_with(held, 0);
    let said = || backend.leaks().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said(), ["'leaky' holds 1 stream, 2 events on cuda:0"]);
    events.into_iter().for_each(|event| t.event_destroy(event));
    assert_eq!(said(), ["'leaky' holds 1 stream on cuda:0"]);
    t.stream_destroy(stream);
    assert_eq!(said(), [""; 0]);
}
