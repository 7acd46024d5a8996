//! A stranger's own stream, which our work is ordered with.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::Session;
use crossdock::api::Code;
use crossdock_memory::{Buffer, Copies, Device, ForeignOwner, Ready, Stream};

use super::races::{BYTES, bytes, values, wait_for};
use super::stranger::{Handle, Stranger};
use super::two_devices::{OTHER, two};
use super::{GPU, setting, skip};

const LEGACY: Handle = std::ptr::without_provenance_mut(1);
const PER_THREAD: Handle = std::ptr::without_provenance_mut(2);

fn adopt(session: &Session, device: Device, raw: Handle) -> Stream {
    // SAFETY: each test's stream is alive for as long as it uses what comes back.
    unsafe { session.memory().adopt_stream(device, raw) }.unwrap()
}

/// A range of the stranger's; when it is released is counted.
fn lent(device: Device, address: u64, bytes: usize, ready: Ready, released: &Arc<AtomicUsize>) -> Buffer {
    let released = released.clone();
    let owner = ForeignOwner::on_release(move || {
        released.fetch_add(1, Ordering::SeqCst);
    });
    // SAFETY: the stranger frees it after the release.
    unsafe { Buffer::foreign(&owner, device, address, Some(bytes as u64), ready) }
}

/// A copy by `stream`, ready when that is done.
fn copied(session: &Session, stream: &Stream, from: &Buffer) -> Buffer {
    let mut to = session.memory().alloc(stream, BYTES).unwrap();
    stream.copy(&mut to, 0, from, 0, BYTES).unwrap();
    to.freeze(stream).unwrap()
}

#[test]
fn work_is_ordered_with_a_strangers_stream_in_both_directions_and_nothing_waits_on_the_host() {
    let Some((stranger, host, session)) = setting("work_is_ordered_with_a_strangers_stream") else { return };
    let own = stranger.stream();
    for (seed, theirs) in [(1, own), (2, LEGACY), (3, PER_THREAD)] {
        let adopted = adopt(&session, GPU, theirs);
        assert_eq!((adopted.native(), adopted.device()), (theirs, GPU));
        let released = Arc::<AtomicUsize>::default();
        let source = stranger.upload(&bytes(&values(seed)));
        let (target, kept) = (stranger.upload(&vec![0; BYTES]), stranger.upload(&vec![0; BYTES]));
        stranger.late_copy(theirs, target, source, BYTES);
        let late = stranger.record(theirs);
        let watch = stranger.watch();
        // We wait for them,
        let ready = adopted.record().unwrap();
        assert!(!ready.is_now());
        let from = lent(GPU, target, BYTES, ready, &released);
        let ours = copied(&session, session.stream(), &from);
        // and they for us.
        adopted.wait(ours.ready()).unwrap();
        watch.nobody_waited_for(late);
        stranger.late_copy(theirs, kept, ours.address(), BYTES);
        ours.mark_lent();
        drop((ours, from));
        assert_eq!(stranger.download(theirs, kept, BYTES), bytes(&values(seed)), "{theirs:p}");
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target, kept].into_iter().for_each(|address| stranger.free(address));
        stranger.destroy_event(late);
    }
    stranger.destroy_stream(own);
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn what_is_allocated_on_a_strangers_stream_outlives_it() {
    let Some((stranger, host, session)) = setting("what_is_allocated_on_a_strangers_stream") else { return };
    let (memory, released) = (session.memory(), Arc::<AtomicUsize>::default());
    let source = stranger.upload(&bytes(&values(4)));
    let from = lent(GPU, source, BYTES, Ready::Now, &released);
    for round in 0..4 {
        let theirs = stranger.stream();
        let adopted = adopt(&session, GPU, theirs);
        // Work before it on the default stream, which the block comes from.
        drop(copied(&session, session.stream(), &from));
        let ours = copied(&session, &adopted, &from);
        let mut other = memory.alloc(&adopted, BYTES).unwrap();
        adopted.fill(&mut other, 0, BYTES, round).unwrap();
        drop(adopted);
        // The handle was forgotten, and the stream is still theirs; it goes with work on it.
        stranger.late_copy(theirs, other.address(), source, BYTES);
        let other = other.freeze_after(Ready::Now);
        other.mark_lent();
        // Nor is it handed out as one of ours. Once it is gone, the driver may give a new stream its number.
        let next = memory.create_stream(GPU).unwrap();
        assert_ne!(next.native(), theirs);
        stranger.destroy_stream(theirs);
        drop(other);
        drop(copied(&session, &next, &from));
        assert_eq!(&*ours.host_view(session.stream()).unwrap(), bytes(&values(4)), "round {round}");
    }
    drop(from);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    drop(session);
    assert_eq!(host.settle(), []);
    stranger.free(source);
}

#[test]
fn two_handles_of_one_stream_are_in_its_order() {
    let Some((stranger, host, session)) = setting("two_handles_of_one_stream") else { return };
    let theirs = stranger.stream();
    let (first, second) = (adopt(&session, GPU, theirs), adopt(&session, GPU, theirs));
    let mut block = session.memory().alloc(&first, BYTES).unwrap();
    first.fill(&mut block, 0, BYTES, 1).unwrap();
    second.fill(&mut block, 0, BYTES, 2).unwrap();
    drop(first);
    second.wait(&second.record().unwrap()).unwrap();
    let block = block.freeze(&second).unwrap();
    assert!(block.host_view(&second).unwrap().iter().all(|byte| *byte == 2));
    // One of ours is a stream like any other, too.
    let ours = adopt(&session, GPU, session.stream().native());
    assert_eq!(copied(&session, &ours, &block).len(), Some(BYTES));
    drop((ours, second, block, session));
    assert_eq!(host.settle(), []);
    stranger.destroy_stream(theirs);
}

#[test]
fn a_moment_on_one_threads_stream_is_waited_for_on_anothers() {
    let Some((stranger, host, session)) = setting("a_moment_on_one_threads_stream") else { return };
    let released = Arc::<AtomicUsize>::default();
    let source = stranger.upload(&bytes(&values(5)));
    let adopted = adopt(&session, GPU, PER_THREAD);
    // Kept, since its release would be a moment that the host waits for.
    let from = lent(GPU, source, BYTES, Ready::Now, &released);
    let ours = copied(&session, &adopted, &from);
    let read = std::thread::scope(|scope| {
        let there = || {
            stranger.enter();
            let again = copied(&session, &adopted, &ours);
            again.host_view(&adopted).unwrap().to_vec()
        };
        scope.spawn(there).join().unwrap()
    });
    assert_eq!(read, bytes(&values(5)));
    drop(from);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    stranger.free(source);
    drop((ours, adopted, session));
    assert_eq!(host.settle(), []);
}

/// So many that several threads copy them.
const MANY_BYTES: usize = 24 << 20;

#[test]
fn copies_of_memory_that_is_not_pinned_are_in_the_order_of_each_strangers_stream() {
    let Some((stranger, host, session)) = setting("copies_of_memory_that_is_not_pinned") else { return };
    let own = stranger.stream();
    let sent: Vec<u8> =
        (0..MANY_BYTES).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let released = Arc::<AtomicUsize>::default();
    for theirs in [own, LEGACY, PER_THREAD] {
        let adopted = adopt(&session, GPU, theirs);
        let from = lent(Device::CPU, sent.as_ptr() as u64, MANY_BYTES, Ready::Now, &released);
        let kept = stranger.alloc(MANY_BYTES);
        let mut to = session.memory().alloc(&adopted, MANY_BYTES).unwrap();
        adopted.fill(&mut to, 0, MANY_BYTES, 0).unwrap();
        let mut copies = Copies::new();
        copies.push(&mut to, 0, &from, 0, MANY_BYTES).unwrap();
        copies.submit(&adopted).unwrap();
        // Nobody waits for anything: it is one stream.
        stranger.late_copy(theirs, kept, to.address(), MANY_BYTES);
        let late = lent(GPU, kept, MANY_BYTES, Ready::Now, &released);
        let mut seen = vec![0; MANY_BYTES];
        let mut copies = Copies::new();
        copies.push_to_host(&mut seen, &late, 0).unwrap();
        copies.submit(&adopted).unwrap();
        assert!(seen == sent, "{theirs:p}");
        drop((to, late));
        stranger.free(kept);
    }
    drop(session);
    assert_eq!(host.settle(), []);
    stranger.destroy_stream(own);
}

#[test]
fn what_is_no_stream_of_the_device_is_refused_by_name() {
    let Some((stranger, host, session)) = setting("what_is_no_stream_of_the_device") else { return };
    // SAFETY: refused before it is used.
    let refused = unsafe { session.memory().adopt_stream(GPU, null_mut()) }.err().unwrap();
    assert_eq!(refused.code(), Code::INVALID_ARGUMENT);
    let words = ["stream_adopt on cuda:0", "the stream is NULL", "legacy default stream is 1"];
    words.iter().for_each(|word| assert!(refused.message().contains(word), "{refused}"));
    if host.backend().cuda().unwrap().devices.len() < 2 {
        skip("what_is_no_stream_of_the_device, of another device", "it needs two CUDA devices");
    } else {
        let theirs = stranger.stream();
        // SAFETY: as above.
        let refused = unsafe { session.memory().adopt_stream(OTHER, theirs) }.err().unwrap();
        assert_eq!(refused.code(), Code::INVALID_ARGUMENT);
        assert!(refused.message().contains("expected one of cuda:1"), "{refused}");
        stranger.destroy_stream(theirs);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_strangers_stream_under_capture_is_refused_by_name_and_the_capture_holds() {
    let Some((stranger, host, session)) = setting("a_strangers_stream_under_capture") else { return };
    let theirs = stranger.stream();
    let adopted = adopt(&session, GPU, theirs);
    let mut block = session.memory().alloc(&adopted, 64).unwrap();
    stranger.begin_capture(theirs, 1);
    assert!(adopted.is_capturing().unwrap());
    let refused = |what: &str, result: Result<(), crossdock_memory::Error>| {
        let error = result.expect_err(what);
        assert!(error.message().contains("end the capture first"), "{what}: {error}");
    };
    refused("allocate", session.memory().alloc(&adopted, 64).map(drop));
    refused("fill", adopted.fill(&mut block, 0, 64, 0));
    refused("record", adopted.record().map(drop));
    refused("synchronise", adopted.synchronize());
    stranger.end_capture(theirs);
    adopted.fill(&mut block, 0, 64, 0).unwrap();
    drop((block, adopted, session));
    assert_eq!(host.settle(), []);
    stranger.destroy_stream(theirs);
}

#[test]
fn a_moment_on_a_strangers_stream_is_waited_for_on_the_other_device() {
    let Some((here, there, host, session)) = two("a_moment_on_a_strangers_stream") else { return };
    let far = host.session().device(OTHER).open().unwrap();
    let (near_own, far_own) = (here.stream(), there.within(|| there.stream()));
    // The legacy streams of both have one number.
    for (near, distant) in [(near_own, far_own), (LEGACY, LEGACY)] {
        let (adopted_here, adopted_there) = (adopt(&session, GPU, near), adopt(&far, OTHER, distant));
        let released = Arc::<AtomicUsize>::default();
        let source = here.upload(&bytes(&values(6)));
        let (target, kept) = (here.upload(&vec![0; BYTES]), here.upload(&vec![0; BYTES]));
        here.late_copy(near, target, source, BYTES);
        let from = lent(GPU, target, BYTES, adopted_here.record().unwrap(), &released);
        let moved = copied(&far, &adopted_there, &from);
        adopted_here.wait(moved.ready()).unwrap();
        let back = copied(&session, &adopted_here, &moved);
        here.late_copy(near, kept, back.address(), BYTES);
        assert_eq!(here.download(near, kept, BYTES), bytes(&values(6)));
        drop((from, moved, back));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target, kept].into_iter().for_each(|address| here.free(address));
    }
    drop((far, session));
    assert_eq!(host.settle(), []);
    here.destroy_stream(near_own);
    there.within(|| there.destroy_stream(far_own));
}

/// What the tests above rest on: without a wait there is a race, which is seen.
#[test]
fn a_wait_that_is_left_out_is_reported() {
    const TEST: &str = "a_wait_that_is_left_out";
    let Some((stranger, host, session)) = setting(TEST) else { return };
    let theirs = stranger.stream();
    let released = Arc::<AtomicUsize>::default();
    let adopted = adopt(&session, GPU, theirs);
    let (source, target) = (stranger.upload(&bytes(&values(7))), stranger.upload(&vec![0; BYTES]));
    let we_do_not_wait = |stranger: &Stranger| {
        stranger.late_copy(theirs, target, source, BYTES);
        let from = lent(GPU, target, BYTES, Ready::Now, &released);
        drop(copied(&session, session.stream(), &from));
        session.stream().synchronize().unwrap();
    };
    let they_do_not_wait = |stranger: &Stranger| {
        let from = lent(GPU, source, BYTES, Ready::Now, &released);
        let ours = copied(&session, session.stream(), &from);
        stranger.late_copy(theirs, target, ours.address(), BYTES);
        adopted.synchronize().unwrap();
        session.stream().synchronize().unwrap();
    };
    let seen = [
        stranger.violations(|| we_do_not_wait(&stranger)),
        stranger.violations(|| they_do_not_wait(&stranger)),
    ];
    match seen {
        [Some(first), Some(second)] => {
            assert!(first > 0 && second > 0, "{first} and {second} were seen");
            wait_for(|| released.load(Ordering::SeqCst) == 2);
        }
        _ => skip(TEST, "only a simulated driver sees races"),
    }
    stranger.download(theirs, target, 1);
    [source, target].into_iter().for_each(|address| stranger.free(address));
    stranger.destroy_stream(theirs);
    drop((adopted, session));
    assert_eq!(host.settle(), []);
}
