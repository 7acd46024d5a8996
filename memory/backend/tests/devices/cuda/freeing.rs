//! Tests that blocks are freed after their last use, without blocking.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::ThreadId;

use crossdock_plugin_api::{Device, abi};

use super::{GPU, backend, content, skip};
use crate::common::{copy, table};

#[test]
fn does_not_reuse_a_block_that_another_stream_reads() {
    let Some(backend) = backend("does_not_reuse_a_block_that_another_stream_reads") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let (writer, reader) = (t.stream_create(GPU).unwrap(), t.stream_create(GPU).unwrap());
    const BYTES: usize = 4 << 20;
    for (round, flags) in (0..16u8).zip([0, abi::FREE_EXPORTED, 1 << 31].into_iter().cycle()) {
        let block = t.alloc_aligned(GPU, BYTES, 64, writer).unwrap();
        let copied = t.alloc_aligned(GPU, BYTES, 64, reader).unwrap();
        t.fill(writer, block.address, round, BYTES).unwrap();
        let written = t.event_record(writer).unwrap();
        t.stream_wait(reader, written).unwrap();
        for _ in 0..4 {
            t.copies(reader, &[copy((GPU, copied.address), (GPU, block.address), BYTES)]).unwrap();
        }
        // If `flags` is not 0, `free` gets no events, as if another library used the block. The
        // backend must wait for such uses if the block was exported, or if the backend does not
        // define the flag.
        let read = t.event_record(reader).unwrap();
        if flags == 0 {
            t.free_after(block, &[read], flags);
        } else {
            t.free_after(block, &[], flags);
        }
        // The next block may reuse the memory. The test overwrites it immediately.
        let next = t.alloc_aligned(GPU, BYTES, 64, writer).unwrap();
        t.fill(writer, next.address, 0xff, BYTES).unwrap();
        let mut target = vec![0; BYTES];
        t.copies(reader, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, copied.address), BYTES)]).unwrap();
        assert!(target.iter().all(|byte| *byte == round), "round {round}, flags {flags}");
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
fn pinned_memory_may_be_freed_while_a_copy_from_it_is_queued() {
    let Some(backend) = backend("pinned_memory_may_be_freed_while_a_copy_from_it_is_queued") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 8 << 20;
    // This allocation starts the device. Host memory is not pinned before the device is started.
    let block = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    for round in 0..8u8 {
        let pinned = t.alloc_pinned(BYTES).unwrap();
        // SAFETY: the block is live, and only this test uses it.
        unsafe { std::ptr::write_bytes(pinned.address, round, BYTES) };
        t.copies(stream, &[copy((GPU, block.address), (Device::CPU, pinned.address), BYTES)]).unwrap();
        let read = t.event_record(stream).unwrap();
        t.free_after(pinned, &[read], 0);
        // A new block of the same size must use different memory while the copy is in flight. The
        // test overwrites it immediately.
        let next = t.alloc_pinned(BYTES).unwrap();
        // SAFETY: the block is live, and only this test uses it.
        unsafe { std::ptr::write_bytes(next.address, 0xff, BYTES) };
        let mut target = vec![0; BYTES];
        t.copies(stream, &[copy((Device::CPU, target.as_mut_ptr()), (GPU, block.address), BYTES)]).unwrap();
        assert!(target.iter().all(|byte| *byte == round), "round {round}");
        t.free_with(next, 0);
        t.event_destroy(read);
    }
    t.free_with(block, 0);
    t.stream_destroy(stream);
    assert!(backend.leaks().is_empty());
}

static CALLS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_and_send(data: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: `data` is the box that the test passed to `call_after`, which calls this function
    // once.
    let sender = unsafe { Box::from_raw(data.cast::<mpsc::Sender<std::thread::ThreadId>>()) };
    // An error is ignored: if the receiver is gone, the test has already failed.
    sender.send(std::thread::current().id()).unwrap_or_default();
}

#[test]
fn call_after_runs_its_callback_once_after_the_events() {
    let Some(backend) = backend("call_after_runs_its_callback_once_after_the_events") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let call_after = t.functions().call_after.unwrap();
    let (sender, receiver) = mpsc::channel();
    let data = || Box::into_raw(Box::new(sender.clone())).cast();
    // SAFETY: the list has 0 events, and `data` is a boxed sender, as `count_and_send` expects.
    unsafe { call_after(t.raw(), std::ptr::null(), 0, abi::Callback(Some(count_and_send)), data()) };
    assert_eq!(receiver.try_recv(), Ok(std::thread::current().id()));

    let stream = t.stream_create(GPU).unwrap();
    const BYTES: usize = 16 << 20;
    let block = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
    for _ in 0..8 {
        t.fill(stream, block.address, 1, BYTES).unwrap();
        let event = t.event_record(stream).unwrap();
        // SAFETY: `event` is live, and `data` is a boxed sender, as `count_and_send` expects.
        unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(count_and_send)), data()) };
        t.event_destroy(event);
    }
    for _ in 0..8 {
        receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    }
    assert_eq!(CALLS.load(Ordering::SeqCst), 9);
    t.free_with(block, 0);
    t.stream_destroy(stream);
}

/// The argument of `wait_for_permission`: the id of the thread that drops the backend, a sender
/// that reports whether the callback runs on another thread, a receiver of the permission to
/// return, and a sender that reports whether the permission arrived.
struct CallbackState(ThreadId, mpsc::Sender<bool>, mpsc::Receiver<()>, mpsc::Sender<bool>);

unsafe extern "C" fn wait_for_permission(data: *mut c_void) {
    // SAFETY: `data` is the box that the test passed to `call_after`, which calls this function
    // once.
    let state = unsafe { Box::from_raw(data.cast::<CallbackState>()) };
    let is_elsewhere = std::thread::current().id() != state.0;
    state.1.send(is_elsewhere).unwrap();
    if is_elsewhere {
        let was_allowed = state.2.recv_timeout(std::time::Duration::from_secs(10)).is_ok();
        state.3.send(was_allowed).unwrap();
    }
}

#[test]
fn dropping_the_backend_does_not_wait_for_a_callback() {
    const TEST: &str = "dropping_the_backend_does_not_wait_for_a_callback";
    const BYTES: usize = 64 << 20;
    // If the device finishes before `call_after` is called, the callback runs immediately on this
    // thread. The test therefore tries several times.
    for _ in 0..20 {
        let Some(backend) = backend(TEST) else { return };
        let account = backend.account("test");
        let t = table(&account);
        let stream = t.stream_create(GPU).unwrap();
        let block = t.alloc_aligned(GPU, BYTES, 64, stream).unwrap();
        (0..16).for_each(|_| t.fill(stream, block.address, 1, BYTES).unwrap());
        let event = t.event_record(stream).unwrap();
        let ((begin, has_begun), (allow, is_allowed), (report, reported)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let state = CallbackState(std::thread::current().id(), begin, is_allowed, report);
        let call_after = t.functions().call_after.unwrap();
        let data = Box::into_raw(Box::new(state)).cast();
        // SAFETY: `event` is live, and `data` is a boxed `CallbackState`, as `wait_for_permission`
        // expects.
        unsafe { call_after(t.raw(), &event, 1, abi::Callback(Some(wait_for_permission)), data) };
        t.event_destroy(event);
        t.free(block);
        t.stream_destroy(stream);
        let is_elsewhere = has_begun.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        drop((account, backend));
        if is_elsewhere {
            allow.send(()).ok();
            assert!(reported.recv().unwrap(), "dropping the backend waited for the callback");
            return;
        }
    }
    skip(TEST, "the device was always done before `call_after`");
}

#[test]
fn device_memory_is_bounded_over_many_rounds() {
    let Some(backend) = backend("device_memory_is_bounded_over_many_rounds") else { return };
    let account = backend.account("test");
    let t = table(&account);
    let source = content(1 << 20);
    // The host queues work faster than the device runs it, so that blocks of several rounds exist
    // at the same time.
    let rounds = |n: usize| {
        let round = |_| {
            let blocks: Vec<_> = (0..4).map(|_| t.upload(GPU, &source).unwrap()).collect();
            blocks.into_iter().for_each(|block| t.free(block));
            backend.ledger().cached_bytes
        };
        (0..n).map(round).max().unwrap()
    };
    let (early, late) = (rounds(100), rounds(400));
    assert!(late <= early * 3 + (256 << 20), "pools cache up to {late} bytes, {early} at first");
    assert!(backend.leaks().is_empty());
    backend.trim();
    assert_eq!(backend.ledger().cached_bytes, 0, "nothing is in use");
}

#[test]
fn names_leaked_streams_and_events() {
    let Some(backend) = backend("names_leaked_streams_and_events") else { return };
    let account = backend.account("leaky");
    let t = table(&account);
    let stream = t.stream_create(GPU).unwrap();
    let block = t.alloc_aligned(GPU, 1 << 20, 64, stream).unwrap();
    t.fill(stream, block.address, 1, 1 << 20).unwrap();
    let events = [t.event_record(stream).unwrap(), t.event_record(stream).unwrap()];
    assert!(events.iter().all(|event| !event.is_null()));
    t.stream_synchronize(stream).unwrap();
    t.free_with(block, 0);
    let leaks = || backend.leaks().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(leaks(), ["'leaky' holds 1 stream, 2 events on cuda:0"]);
    events.into_iter().for_each(|event| t.event_destroy(event));
    assert_eq!(leaks(), ["'leaky' holds 1 stream on cuda:0"]);
    t.stream_destroy(stream);
    assert_eq!(leaks(), [""; 0]);
}
