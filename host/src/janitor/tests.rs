#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::waiting::{Counted, Waiting};

/// Longer than any machine takes to wake a thread.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Brings the next one when it is dropped, so that there is always one that is idle.
struct Link {
    /// Not a share of it, or none of them would ever go.
    waiting: Weak<Waiting<Link>>,
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
        let Self { waiting, is_over, begin } = &*self;
        if let Some(there) = waiting.upgrade().filter(|_| !is_over.load(Ordering::Relaxed)) {
            assert!(begin.elapsed() < HANGS_AFTER, "there is no end to it");
            there.add(Link { waiting: waiting.clone(), is_over: is_over.clone(), begin: *begin });
        }
    }
}

#[test]
fn who_waits_for_what_is_idle_by_now_is_not_kept_by_what_comes_later() {
    let (waiting, is_over) = (Arc::new(Waiting::default()), Arc::new(AtomicBool::new(false)));
    waiting.add(Link { waiting: Arc::downgrade(&waiting), is_over: is_over.clone(), begin: Instant::now() });
    let (rounds, over) = (waiting.clone(), is_over.clone());
    let thread = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            rounds.round();
        }
    });
    let deadline = Instant::now() + HANGS_AFTER;
    waiting.settle(Some(deadline));
    assert!(Instant::now() < deadline, "it was waited for as long as others came");
    is_over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

const MOST: usize = 3;

/// Ends when it may.
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
fn who_makes_them_faster_than_they_end_waits_for_room() {
    let (waiting, is_over) = (Arc::new(Waiting::default()), Arc::new(AtomicBool::new(false)));
    let (may_end, alive) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let make = || {
        alive.fetch_add(1, Ordering::Relaxed);
        waiting.add(Slow { may_end: may_end.clone(), alive: alive.clone() });
    };
    let none_ends = may_end.lock().unwrap();
    (0..=MOST).for_each(|_| make());
    let (rounds, over) = (waiting.clone(), is_over.clone());
    let thread = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            rounds.round();
        }
    });
    let (begin, short) = (Instant::now(), Duration::from_millis(20));
    waiting.wait_for_room(MOST, HANGS_AFTER, short);
    assert!(begin.elapsed() >= short, "there was room for more than {MOST}");
    waiting.wait_for_room(MOST + 1, HANGS_AFTER, HANGS_AFTER);
    // One that takes this long already is waited for by nobody, however patient.
    waiting.wait_for_room(MOST, short, HANGS_AFTER);
    assert!(begin.elapsed() < HANGS_AFTER, "it was waited for all the same");
    drop(none_ends);
    for _ in 0..1000 {
        waiting.wait_for_room(MOST, HANGS_AFTER, HANGS_AFTER);
        make();
        let alive = alive.load(Ordering::Relaxed);
        assert!(alive <= MOST + 1, "{alive} are alive");
    }
    is_over.store(true, Ordering::Relaxed);
    make();
    thread.join().unwrap();
}

/// Panics where it ends.
struct Panics;

impl Counted for Panics {
    fn is_idle(&self) -> bool {
        true
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("as this test has it");
        }
    }
}

#[test]
fn one_that_panics_where_it_ends_keeps_nobody_waiting() {
    let waiting = Waiting::default();
    waiting.add(Panics);
    waiting.add(Panics);
    let round = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waiting.round()));
    assert!(round.is_err());
    let deadline = Instant::now() + HANGS_AFTER;
    waiting.settle(Some(deadline));
    waiting.wait_for_room(0, HANGS_AFTER, HANGS_AFTER);
    assert!(Instant::now() < deadline, "both were waited for");
}
