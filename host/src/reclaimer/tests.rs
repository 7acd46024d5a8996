#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::queue::{Counted, ReclaimQueue};

/// The duration after which a test counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Adds its successor when it is dropped, so that a value is always idle.
struct Link {
    /// A weak reference, because the queue owns the links.
    queue: Weak<ReclaimQueue<Link>>,
    is_over: Arc<AtomicBool>,
    begin: Instant,
}

impl Counted for Link {
    fn is_idle(&self) -> bool {
        true
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Self { queue: weak, is_over, begin } = &*self;
        if let Some(queue) = weak.upgrade().filter(|_| !is_over.load(Ordering::Relaxed)) {
            assert!(begin.elapsed() < HANGS_AFTER, "the chain of drops does not end");
            queue.add(Link { queue: weak.clone(), is_over: is_over.clone(), begin: *begin });
        }
    }
}

#[test]
fn settle_does_not_wait_for_values_added_later() {
    let (queue, is_over) = (Arc::new(ReclaimQueue::default()), Arc::new(AtomicBool::new(false)));
    queue.add(Link { queue: Arc::downgrade(&queue), is_over: is_over.clone(), begin: Instant::now() });
    let (rounds, over) = (queue.clone(), is_over.clone());
    let thread = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            rounds.round();
        }
    });
    let deadline = Instant::now() + HANGS_AFTER;
    queue.settle(Some(deadline));
    assert!(Instant::now() < deadline, "settle waited for values that were added later");
    is_over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

const MAX_IDLE: usize = 3;

/// Blocks in its drop while `may_end` is locked.
struct Slow {
    may_end: Arc<Mutex<()>>,
    alive: Arc<AtomicUsize>,
}

impl Counted for Slow {
    fn is_idle(&self) -> bool {
        true
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        drop(self.may_end.lock());
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn wait_for_room_limits_the_number_of_idle_values() {
    let (queue, is_over) = (Arc::new(ReclaimQueue::default()), Arc::new(AtomicBool::new(false)));
    let (may_end, alive) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let make = || {
        alive.fetch_add(1, Ordering::Relaxed);
        queue.add(Slow { may_end: may_end.clone(), alive: alive.clone() });
    };
    let drops_blocked = may_end.lock().unwrap();
    (0..=MAX_IDLE).for_each(|_| make());
    let (rounds, over) = (queue.clone(), is_over.clone());
    let thread = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            rounds.round();
        }
    });
    let (begin, short) = (Instant::now(), Duration::from_millis(20));
    queue.wait_for_room(MAX_IDLE, HANGS_AFTER, short);
    assert!(begin.elapsed() >= short, "wait_for_room returned with more than {MAX_IDLE} idle values");
    queue.wait_for_room(MAX_IDLE + 1, HANGS_AFTER, HANGS_AFTER);
    // The running drop exceeds `max_drop`, so this call returns at once.
    queue.wait_for_room(MAX_IDLE, short, HANGS_AFTER);
    assert!(begin.elapsed() < HANGS_AFTER, "waited for a drop that takes too long");
    drop(drops_blocked);
    for _ in 0..1000 {
        queue.wait_for_room(MAX_IDLE, HANGS_AFTER, HANGS_AFTER);
        make();
        let alive = alive.load(Ordering::Relaxed);
        assert!(alive <= MAX_IDLE + 1, "{alive} are alive");
    }
    is_over.store(true, Ordering::Relaxed);
    make();
    thread.join().unwrap();
}

/// Panics when it is dropped.
struct Panics;

impl Counted for Panics {
    fn is_idle(&self) -> bool {
        true
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("injected panic");
        }
    }
}

#[test]
fn panic_in_drop_does_not_block_waiters() {
    let queue = ReclaimQueue::default();
    queue.add(Panics);
    queue.add(Panics);
    let round = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.round()));
    assert!(round.is_err());
    let deadline = Instant::now() + HANGS_AFTER;
    queue.settle(Some(deadline));
    queue.wait_for_room(0, HANGS_AFTER, HANGS_AFTER);
    assert!(Instant::now() < deadline, "waited for values whose drop panicked");
}
