//! Tests that the host adopts streams of other libraries, and orders its own work with the work of
//! these libraries.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::Session;
use crossdock::api::Code;
use crossdock_memory::{Buffer, Copies, Device, ForeignOwner, Ready, Stream};

use super::external::{External, Handle};
use super::races::{BYTES, bytes, values, wait_for};
use super::two_devices::{OTHER, setup_two_devices};
use super::{GPU, setup, skip};

const LEGACY: Handle = std::ptr::without_provenance_mut(1);
const PER_THREAD: Handle = std::ptr::without_provenance_mut(2);

fn adopt(session: &Session, device: Device, raw: Handle) -> Stream {
    // SAFETY: each test keeps the stream alive while it uses the adopted stream.
    unsafe { session.memory().adopt_stream(device, raw) }.unwrap()
}

/// A buffer in memory of the external library. Increments a counter when it is released.
fn external_buffer(
    device: Device,
    address: u64,
    bytes: usize,
    ready: Ready,
    released: &Arc<AtomicUsize>,
) -> Buffer {
    let released = released.clone();
    let owner = ForeignOwner::on_release(move || {
        released.fetch_add(1, Ordering::SeqCst);
    });
    // SAFETY: the test frees the memory only after the release.
    unsafe { Buffer::foreign(&owner, device, address, Some(bytes as u64), ready) }
}

/// A copy of `from` that is made on `stream`.
fn copy_on(session: &Session, stream: &Stream, from: &Buffer) -> Buffer {
    let mut to = session.memory().alloc(stream, BYTES).unwrap();
    stream.copy(&mut to, 0, from, 0, BYTES).unwrap();
    to.freeze(stream).unwrap()
}

#[test]
fn work_is_ordered_with_an_external_stream_without_host_waits() {
    let Some((external, host, session)) = setup("work_is_ordered_with_an_external_stream_without_host_waits")
    else {
        return;
    };
    let created = external.stream();
    for (seed, external_stream) in [(1, created), (2, LEGACY), (3, PER_THREAD)] {
        let adopted = adopt(&session, GPU, external_stream);
        assert_eq!((adopted.native(), adopted.device()), (external_stream, GPU));
        let released = Arc::<AtomicUsize>::default();
        let source = external.upload(&bytes(&values(seed)));
        let (target, result) = (external.upload(&vec![0; BYTES]), external.upload(&vec![0; BYTES]));
        external.late_copy(external_stream, target, source, BYTES);
        let late = external.record(external_stream);
        let watch = external.watch();
        // The host's copy waits for the first external copy.
        let ready = adopted.record().unwrap();
        assert!(!ready.is_now());
        let from = external_buffer(GPU, target, BYTES, ready, &released);
        let copy = copy_on(&session, session.stream(), &from);
        // The next external copy waits for the host's copy.
        adopted.wait(copy.ready()).unwrap();
        watch.assert_host_did_not_wait_for(late);
        external.late_copy(external_stream, result, copy.address(), BYTES);
        copy.mark_exported();
        drop((copy, from));
        assert_eq!(
            external.download(external_stream, result, BYTES),
            bytes(&values(seed)),
            "{external_stream:p}"
        );
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target, result].into_iter().for_each(|address| external.free(address));
        external.destroy_event(late);
    }
    external.destroy_stream(created);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn allocations_outlive_their_external_stream() {
    let Some((external, host, session)) = setup("allocations_outlive_their_external_stream") else { return };
    let (memory, released) = (session.memory(), Arc::<AtomicUsize>::default());
    let source = external.upload(&bytes(&values(4)));
    let from = external_buffer(GPU, source, BYTES, Ready::Now, &released);
    for round in 0..4 {
        let external_stream = external.stream();
        let adopted = adopt(&session, GPU, external_stream);
        // Enqueues work on the default stream, because the block is allocated from the pool of that
        // stream.
        drop(copy_on(&session, session.stream(), &from));
        let copy = copy_on(&session, &adopted, &from);
        let mut other = memory.alloc(&adopted, BYTES).unwrap();
        adopted.fill(&mut other, 0, BYTES, round).unwrap();
        drop(adopted);
        // The host has dropped its handle, but the stream still exists. The stream is then
        // destroyed while its work is pending.
        external.late_copy(external_stream, other.address(), source, BYTES);
        let other = other.freeze_after(Ready::Now);
        other.mark_exported();
        // The host must not use the stream again, because the driver may reuse the handle of a
        // destroyed stream.
        let next = memory.create_stream(GPU).unwrap();
        assert_ne!(next.native(), external_stream);
        external.destroy_stream(external_stream);
        drop(other);
        drop(copy_on(&session, &next, &from));
        assert_eq!(&*copy.host_view(session.stream()).unwrap(), bytes(&values(4)), "round {round}");
    }
    drop(from);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    drop(session);
    assert_eq!(host.settle(), []);
    external.free(source);
}

#[test]
fn two_handles_of_one_stream_share_its_order() {
    let Some((external, host, session)) = setup("two_handles_of_one_stream_share_its_order") else { return };
    let external_stream = external.stream();
    let (first, second) = (adopt(&session, GPU, external_stream), adopt(&session, GPU, external_stream));
    let mut block = session.memory().alloc(&first, BYTES).unwrap();
    first.fill(&mut block, 0, BYTES, 1).unwrap();
    second.fill(&mut block, 0, BYTES, 2).unwrap();
    drop(first);
    second.wait(&second.record().unwrap()).unwrap();
    let block = block.freeze(&second).unwrap();
    assert!(block.host_view(&second).unwrap().iter().all(|byte| *byte == 2));
    // A stream that the host created can also be adopted.
    let adopted = adopt(&session, GPU, session.stream().native());
    assert_eq!(copy_on(&session, &adopted, &block).len(), Some(BYTES));
    drop((adopted, second, block, session));
    assert_eq!(host.settle(), []);
    external.destroy_stream(external_stream);
}

#[test]
fn per_thread_streams_of_two_threads_are_ordered() {
    let Some((external, host, session)) = setup("per_thread_streams_of_two_threads_are_ordered") else {
        return;
    };
    let released = Arc::<AtomicUsize>::default();
    let source = external.upload(&bytes(&values(5)));
    let adopted = adopt(&session, GPU, PER_THREAD);
    // Dropped only at the end of the test, because the host waits when this buffer is released.
    let from = external_buffer(GPU, source, BYTES, Ready::Now, &released);
    let copy = copy_on(&session, &adopted, &from);
    let read = std::thread::scope(|scope| {
        let copy_again = || {
            external.enter();
            let again = copy_on(&session, &adopted, &copy);
            again.host_view(&adopted).unwrap().to_vec()
        };
        scope.spawn(copy_again).join().unwrap()
    });
    assert_eq!(read, bytes(&values(5)));
    drop(from);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    external.free(source);
    drop((copy, adopted, session));
    assert_eq!(host.settle(), []);
}

/// Enough bytes for a copy that the backend splits among several threads.
const MANY_BYTES: usize = 24 << 20;

#[test]
fn pageable_copies_follow_the_order_of_external_streams() {
    let Some((external, host, session)) = setup("pageable_copies_follow_the_order_of_external_streams")
    else {
        return;
    };
    let created = external.stream();
    let sent: Vec<u8> =
        (0..MANY_BYTES).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let released = Arc::<AtomicUsize>::default();
    for external_stream in [created, LEGACY, PER_THREAD] {
        let adopted = adopt(&session, GPU, external_stream);
        let from = external_buffer(Device::CPU, sent.as_ptr() as u64, MANY_BYTES, Ready::Now, &released);
        let result = external.alloc(MANY_BYTES);
        let mut to = session.memory().alloc(&adopted, MANY_BYTES).unwrap();
        adopted.fill(&mut to, 0, MANY_BYTES, 0).unwrap();
        let mut copies = Copies::new();
        copies.push(&mut to, 0, &from, 0, MANY_BYTES).unwrap();
        copies.submit(&adopted).unwrap();
        // No waits are needed, because all work is on one stream.
        external.late_copy(external_stream, result, to.address(), MANY_BYTES);
        let late = external_buffer(GPU, result, MANY_BYTES, Ready::Now, &released);
        let mut read = vec![0; MANY_BYTES];
        let mut copies = Copies::new();
        copies.push_to_host(&mut read, &late, 0).unwrap();
        copies.submit(&adopted).unwrap();
        assert!(read == sent, "{external_stream:p}");
        drop((to, late));
        external.free(result);
    }
    drop(session);
    assert_eq!(host.settle(), []);
    external.destroy_stream(created);
}

#[test]
fn rejects_null_streams_and_streams_of_other_devices() {
    let Some((external, host, session)) = setup("rejects_null_streams_and_streams_of_other_devices") else {
        return;
    };
    // SAFETY: NULL is rejected before it is used.
    let error = unsafe { session.memory().adopt_stream(GPU, null_mut()) }.err().unwrap();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    let parts = ["stream_adopt on cuda:0", "the stream is NULL", "legacy default stream is 1"];
    parts.iter().for_each(|part| assert!(error.message().contains(part), "{error}"));
    if host.backend().cuda().unwrap().devices.len() < 2 {
        skip(
            "rejects_null_streams_and_streams_of_other_devices, of another device",
            "it needs two CUDA devices",
        );
    } else {
        let external_stream = external.stream();
        // SAFETY: the stream is alive, and rejected before it is used.
        let error = unsafe { session.memory().adopt_stream(OTHER, external_stream) }.err().unwrap();
        assert_eq!(error.code(), Code::INVALID_ARGUMENT);
        assert!(error.message().contains("expected one of cuda:1"), "{error}");
        external.destroy_stream(external_stream);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn rejects_work_on_external_streams_under_capture() {
    let Some((external, host, session)) = setup("rejects_work_on_external_streams_under_capture") else {
        return;
    };
    let external_stream = external.stream();
    let adopted = adopt(&session, GPU, external_stream);
    let mut block = session.memory().alloc(&adopted, 64).unwrap();
    external.begin_capture(external_stream, 1);
    assert!(adopted.is_capturing().unwrap());
    let assert_rejected = |what: &str, result: Result<(), crossdock_memory::Error>| {
        let error = result.expect_err(what);
        assert!(error.message().contains("end the capture first"), "{what}: {error}");
    };
    assert_rejected("allocate", session.memory().alloc(&adopted, 64).map(drop));
    assert_rejected("fill", adopted.fill(&mut block, 0, 64, 0));
    assert_rejected("record", adopted.record().map(drop));
    assert_rejected("synchronise", adopted.synchronize());
    external.end_capture(external_stream);
    adopted.fill(&mut block, 0, 64, 0).unwrap();
    drop((block, adopted, session));
    assert_eq!(host.settle(), []);
    external.destroy_stream(external_stream);
}

#[test]
fn events_of_external_streams_order_work_on_the_other_device() {
    let Some((here, there, host, session)) =
        setup_two_devices("events_of_external_streams_order_work_on_the_other_device")
    else {
        return;
    };
    let far = host.session().device(OTHER).open().unwrap();
    let (near_own, far_own) = (here.stream(), there.within(|| there.stream()));
    // The legacy streams of both devices have the same handle.
    for (near, distant) in [(near_own, far_own), (LEGACY, LEGACY)] {
        let (adopted_here, adopted_there) = (adopt(&session, GPU, near), adopt(&far, OTHER, distant));
        let released = Arc::<AtomicUsize>::default();
        let source = here.upload(&bytes(&values(6)));
        let (target, result) = (here.upload(&vec![0; BYTES]), here.upload(&vec![0; BYTES]));
        here.late_copy(near, target, source, BYTES);
        let from = external_buffer(GPU, target, BYTES, adopted_here.record().unwrap(), &released);
        let moved = copy_on(&far, &adopted_there, &from);
        adopted_here.wait(moved.ready()).unwrap();
        let back = copy_on(&session, &adopted_here, &moved);
        here.late_copy(near, result, back.address(), BYTES);
        assert_eq!(here.download(near, result, BYTES), bytes(&values(6)));
        drop((from, moved, back));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target, result].into_iter().for_each(|address| here.free(address));
    }
    drop((far, session));
    assert_eq!(host.settle(), []);
    here.destroy_stream(near_own);
    there.within(|| there.destroy_stream(far_own));
}

/// Checks that the other tests of this file can fail: if a wait is omitted, the simulated driver
/// detects a race.
#[test]
fn missing_waits_are_reported_as_races() {
    const TEST: &str = "missing_waits_are_reported_as_races";
    let Some((external, host, session)) = setup(TEST) else { return };
    let external_stream = external.stream();
    let released = Arc::<AtomicUsize>::default();
    let adopted = adopt(&session, GPU, external_stream);
    let (source, target) = (external.upload(&bytes(&values(7))), external.upload(&vec![0; BYTES]));
    let host_does_not_wait = |external: &External| {
        external.late_copy(external_stream, target, source, BYTES);
        let from = external_buffer(GPU, target, BYTES, Ready::Now, &released);
        drop(copy_on(&session, session.stream(), &from));
        session.stream().synchronize().unwrap();
    };
    let external_does_not_wait = |external: &External| {
        let from = external_buffer(GPU, source, BYTES, Ready::Now, &released);
        let copy = copy_on(&session, session.stream(), &from);
        external.late_copy(external_stream, target, copy.address(), BYTES);
        adopted.synchronize().unwrap();
        session.stream().synchronize().unwrap();
    };
    let violations = [
        external.violations(|| host_does_not_wait(&external)),
        external.violations(|| external_does_not_wait(&external)),
    ];
    match violations {
        [Some(first), Some(second)] => {
            assert!(first > 0 && second > 0, "{first} and {second} races were detected");
            wait_for(|| released.load(Ordering::SeqCst) == 2);
        }
        _ => skip(TEST, "only the simulated driver detects races"),
    }
    external.download(external_stream, target, 1);
    [source, target].into_iter().for_each(|address| external.free(address));
    external.destroy_stream(external_stream);
    drop((adopted, session));
    assert_eq!(host.settle(), []);
}
