//! Models the reaper. Any thread can add jobs, and other threads wait for the jobs. The reaper's
//! thread runs the jobs. If this thread cannot be started, the thread that adds a job also runs the
//! job.

#[path = "../../../../memory/backend/src/cuda/reaper/queue.rs"]
#[expect(dead_code, reason = "not used by the models")]
mod queue;
mod sync;

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use queue::{Queue, Status, Work};

/// A job that releases an object as soon as the device no longer uses it. Uses the standard
/// library's `Arc`, because a leaked job also leaks its `Arc`, and loom reports the leak of an
/// `Arc` of loom.
struct Job {
    /// Number of checks until the job is ready. It is bounded, because otherwise the reaper could
    /// check forever.
    checks: Cell<u32>,
    released: Arc<AtomicUsize>,
}

impl Work for Job {
    fn status(&self) -> Status {
        match self.checks.get().checked_sub(1) {
            None => Status::Ready,
            Some(remaining) => {
                self.checks.set(remaining);
                Status::Pending
            }
        }
    }

    fn run(self, status: &Status) -> Option<Self> {
        match status {
            Status::Ready => _ = self.released.fetch_add(1, Ordering::Relaxed),
            _ => return Some(self),
        }
        None
    }
}

/// Adds a job. Returns a counter of how often its object was released.
fn add(queue: &Queue<Job>, checks: u32) -> Arc<AtomicUsize> {
    let released = Arc::new(AtomicUsize::new(0));
    queue.add(Job { checks: Cell::new(checks), released: released.clone() });
    released
}

fn count(released: &AtomicUsize) -> usize {
    released.load(Ordering::Relaxed)
}

/// Spawns a thread that uses the queue.
fn spawn<T: 'static>(
    queue: &Arc<Queue<Job>>,
    f: impl FnOnce(&Queue<Job>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || f(&queue))
}

#[test]
fn flush_waits_for_all_earlier_jobs_which_run_once() {
    model(3, || {
        let queue = Arc::new(Queue::default());
        let first = add(&queue, 1);
        let reaper = spawn(&queue, Queue::run);
        let other = spawn(&queue, |queue| add(queue, 0));
        queue.flush(None);
        assert_eq!(count(&first), 1, "flush did not wait for a job that was added before");
        let second = other.join().unwrap();
        queue.end();
        reaper.join().unwrap();
        assert_eq!((count(&first), count(&second)), (1, 1));
    });
}

#[test]
fn two_threads_run_every_job_exactly_once() {
    model(5, || {
        let queue = Arc::new(Queue::default());
        let add_and_run = |queue: &Queue<Job>| {
            let own = add(queue, 0);
            queue.round();
            queue.flush(None);
            assert_eq!(count(&own), 1, "flush did not wait for a job on the other thread");
            own
        };
        let other = spawn(&queue, add_and_run);
        let own = add_and_run(&queue);
        let other = other.join().unwrap();
        assert_eq!((count(&own), count(&other)), (1, 1));
    });
}

#[test]
fn no_job_runs_after_leak_and_flush() {
    model(5, || {
        let queue = Arc::new(Queue::default());
        let released = Arc::new(AtomicUsize::new(0));
        let job = Job { checks: Cell::new(0), released: released.clone() };
        let other = spawn(&queue, |queue| queue.add(job));
        let reaper = spawn(&queue, Queue::run);
        queue.leak();
        queue.flush(None);
        let n_released = count(&released);
        queue.end();
        reaper.join().unwrap();
        assert_eq!(usize::from(other.join().unwrap()), n_released, "exactly the accepted jobs run");
        assert_eq!(count(&released), n_released, "a job ran after leak and flush");
    });
}
