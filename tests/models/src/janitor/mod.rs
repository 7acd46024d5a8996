//! The janitor: what was lent out goes on any thread, while the instance is retired on another and a third destroys it.

mod sync;
// What only the host asks.
#[allow(dead_code)]
#[path = "../../../../host/src/janitor/waiting.rs"]
mod waiting;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use waiting::{Counted, Waiting};

/// How many references an instance holds by itself.
const OWN: usize = 1;

/// What an instance and those whom it lent something to have in common.
struct Shared {
    references: AtomicUsize,
    /// Written by those who hold a reference, and read when the instance ends.
    written: UnsafeCell<u32>,
    ended: AtomicUsize,
}

struct Instance(Arc<Shared>);

impl Counted for Instance {
    fn is_idle(&self) -> bool {
        // As `Arc::strong_count`.
        self.0.references.load(Ordering::Relaxed) <= OWN
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: nobody else refers to it, or loom says that somebody does.
        let written = self.0.written.with(|written| unsafe { *written });
        assert_eq!(written, 1, "it ended before what its last holder did had happened");
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn lent(n: usize) -> Arc<Self> {
        Arc::new(Self {
            references: AtomicUsize::new(OWN + n),
            written: UnsafeCell::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    /// As the host object's `release`.
    fn release(&self, waiting: &Waiting<Instance>) {
        // As `Arc::decrement_strong_count`.
        self.references.fetch_sub(1, Ordering::Release);
        waiting.reference_gone();
    }

    fn write(&self) {
        // SAFETY: one holder alone writes.
        self.written.with_mut(|written| unsafe { *written = 1 });
    }
}

#[test]
fn an_instance_ends_once_after_its_last_reference_whoever_comes_first() {
    model(5, || {
        let (waiting, shared) = (Arc::new(Waiting::default()), Shared::lent(1));
        let holder = thread::spawn({
            let (waiting, shared) = (waiting.clone(), shared.clone());
            move || {
                shared.write();
                shared.release(&waiting);
            }
        });
        let janitor = thread::spawn({
            let waiting = waiting.clone();
            move || waiting.round()
        });
        waiting.add(Instance(shared.clone()));
        holder.join().unwrap();
        janitor.join().unwrap();
        assert_eq!(shared.ended.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_settles_finds_ended_what_was_idle_before() {
    model(5, || {
        let (waiting, idle, lent) = (Arc::new(Waiting::default()), Shared::lent(0), Shared::lent(1));
        idle.write();
        waiting.add(Instance(lent.clone()));
        waiting.add(Instance(idle.clone()));
        let janitor = thread::spawn({
            let waiting = waiting.clone();
            move || waiting.round()
        });
        waiting.settle(None);
        assert_eq!(idle.ended.load(Ordering::Relaxed), 1, "it was idle, and settling did not wait for it");
        assert_eq!(lent.ended.load(Ordering::Relaxed), 0, "something that it lent out is alive");
        janitor.join().unwrap();
        lent.write();
    });
}

#[test]
fn who_waits_for_room_finds_ended_all_but_so_many() {
    model(5, || {
        let (waiting, shared) = (Arc::new(Waiting::default()), [Shared::lent(0), Shared::lent(1)]);
        shared.iter().for_each(|shared| shared.write());
        waiting.add(Instance(shared[0].clone()));
        let janitor = thread::spawn({
            let waiting = waiting.clone();
            move || waiting.round()
        });
        waiting.add(Instance(shared[1].clone()));
        shared[1].release(&waiting);
        waiting.wait_for_room(1, Duration::MAX, Duration::MAX);
        let ended: usize = shared.iter().map(|shared| shared.ended.load(Ordering::Relaxed)).sum();
        assert!(ended > 0, "both were idle, where there was room for one");
        janitor.join().unwrap();
    });
}
