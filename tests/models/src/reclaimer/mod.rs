//! Models the reclaimer. One thread releases references to an instance, a second thread queues the
//! instance, and a third thread destroys it.

mod sync;
// The models use only some functions of this file.
#[allow(dead_code)]
#[path = "../../../../host/src/reclaimer/queue.rs"]
mod queue;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use queue::{Counted, ReclaimQueue};

/// The number of references to an instance that the instance itself owns.
const OWN: usize = 1;

/// State that an instance shares with the owners of references to it.
struct Shared {
    references: AtomicUsize,
    /// An owner of a reference writes this value. It is read when the instance is destroyed.
    written: UnsafeCell<u32>,
    ended: AtomicUsize,
}

struct Instance(Arc<Shared>);

impl Counted for Instance {
    fn is_idle(&self) -> bool {
        // Uses the same memory order as `Arc::strong_count`.
        self.0.references.load(Ordering::Relaxed) <= OWN
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the queue drops an instance only after its last reference was released, so no
        // other thread writes; otherwise loom reports the access.
        let written = self.0.written.with(|written| unsafe { *written });
        assert_eq!(written, 1, "the write of the last holder is not visible to the drop");
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn with_holders(n: usize) -> Arc<Self> {
        Arc::new(Self {
            references: AtomicUsize::new(OWN + n),
            written: UnsafeCell::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    /// Releases a reference in the same way as the host object's `release`.
    fn release(&self, queue: &ReclaimQueue<Instance>) {
        // Uses the same memory order as `Arc::decrement_strong_count`.
        self.references.fetch_sub(1, Ordering::Release);
        queue.reference_gone();
    }

    fn write(&self) {
        // SAFETY: each model has exactly one thread that writes; otherwise loom reports the access.
        self.written.with_mut(|written| unsafe { *written = 1 });
    }
}

#[test]
fn instance_is_destroyed_once_after_its_last_reference() {
    model(5, || {
        let (queue, shared) = (Arc::new(ReclaimQueue::default()), Shared::with_holders(1));
        let holder = thread::spawn({
            let (queue, shared) = (queue.clone(), shared.clone());
            move || {
                shared.write();
                shared.release(&queue);
            }
        });
        let reclaimer = thread::spawn({
            let queue = queue.clone();
            move || queue.round()
        });
        queue.add(Instance(shared.clone()));
        holder.join().unwrap();
        reclaimer.join().unwrap();
        assert_eq!(shared.ended.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn settle_waits_for_idle_but_not_for_referenced_instances() {
    model(5, || {
        let (queue, idle, exporting) =
            (Arc::new(ReclaimQueue::default()), Shared::with_holders(0), Shared::with_holders(1));
        idle.write();
        queue.add(Instance(exporting.clone()));
        queue.add(Instance(idle.clone()));
        let reclaimer = thread::spawn({
            let queue = queue.clone();
            move || queue.round()
        });
        queue.settle(None);
        assert_eq!(idle.ended.load(Ordering::Relaxed), 1, "settle did not wait for the idle instance");
        assert_eq!(exporting.ended.load(Ordering::Relaxed), 0, "destroyed while a reference was alive");
        reclaimer.join().unwrap();
        exporting.write();
    });
}

#[test]
fn wait_for_room_returns_after_one_instance_is_destroyed() {
    model(5, || {
        let (queue, shared) =
            (Arc::new(ReclaimQueue::default()), [Shared::with_holders(0), Shared::with_holders(1)]);
        shared.iter().for_each(|shared| shared.write());
        queue.add(Instance(shared[0].clone()));
        let reclaimer = thread::spawn({
            let queue = queue.clone();
            move || queue.round()
        });
        queue.add(Instance(shared[1].clone()));
        shared[1].release(&queue);
        queue.wait_for_room(1, Duration::MAX, Duration::MAX);
        let ended: usize = shared.iter().map(|shared| shared.ended.load(Ordering::Relaxed)).sum();
        assert!(ended > 0, "wait_for_room returned with two idle instances");
        reclaimer.join().unwrap();
    });
}
