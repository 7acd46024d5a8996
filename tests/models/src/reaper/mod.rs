//! The reaper: jobs are added on any thread, done by its own (or by who added them, where there is no thread to be had), and
//! waited for on others.

#[path = "../../../../memory/backend/src/cuda/reaper/queue.rs"]
#[expect(dead_code, reason = "what no model needs of it")]
mod queue;
mod sync;

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use queue::{Queue, Standing, Work};

/// Something that goes back once the device is done with it. The standard library's `Arc`, for who leaks a job leaks that too,
/// which loom would not have.
struct Job {
    /// How many looks at it come before that: a device that took as long as it likes would have the reaper look for ever.
    looks: Cell<u32>,
    given_back: Arc<AtomicUsize>,
}

impl Work for Job {
    fn standing(&self) -> Standing {
        match self.looks.get().checked_sub(1) {
            None => Standing::Ready,
            Some(left) => {
                self.looks.set(left);
                Standing::Later
            }
        }
    }

    fn act(self, standing: &Standing) -> Option<Self> {
        match standing {
            Standing::Ready => _ = self.given_back.fetch_add(1, Ordering::Relaxed),
            _ => return Some(self),
        }
        None
    }
}

/// How often it is given back.
fn add(queue: &Queue<Job>, looks: u32) -> Arc<AtomicUsize> {
    let given_back = Arc::new(AtomicUsize::new(0));
    queue.add(Job { looks: Cell::new(looks), given_back: given_back.clone() });
    given_back
}

fn count(given_back: &AtomicUsize) -> usize {
    given_back.load(Ordering::Relaxed)
}

/// A thread that has the queue as well.
fn spawn<T: 'static>(
    queue: &Arc<Queue<Job>>,
    of: impl FnOnce(&Queue<Job>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || of(&queue))
}

#[test]
fn everything_is_given_back_once_and_who_flushes_finds_it_so() {
    model(3, || {
        let queue = Arc::new(Queue::default());
        let first = add(&queue, 1);
        let reaper = spawn(&queue, Queue::run);
        let other = spawn(&queue, |queue| add(queue, 0));
        queue.flush(None);
        assert_eq!(count(&first), 1, "it was added before, and flushing did not wait for it");
        let second = other.join().unwrap();
        queue.end();
        reaper.join().unwrap();
        assert_eq!((count(&first), count(&second)), (1, 1));
    });
}

#[test]
fn two_threads_that_do_what_there_is_leave_nothing_and_do_nothing_twice() {
    model(5, || {
        let queue = Arc::new(Queue::default());
        let add_and_do = |queue: &Queue<Job>| {
            let mine = add(queue, 0);
            queue.round();
            queue.flush(None);
            assert_eq!(count(&mine), 1, "somebody else has it, and flushing did not wait for that");
            mine
        };
        let other = spawn(&queue, add_and_do);
        let mine = add_and_do(&queue);
        let others = other.join().unwrap();
        assert_eq!((count(&mine), count(&others)), (1, 1));
    });
}

#[test]
fn once_who_leaks_has_flushed_nothing_is_given_back_any_more() {
    model(5, || {
        let queue = Arc::new(Queue::default());
        let given_back = Arc::new(AtomicUsize::new(0));
        let job = Job { looks: Cell::new(0), given_back: given_back.clone() };
        let other = spawn(&queue, |queue| queue.add(job));
        let reaper = spawn(&queue, Queue::run);
        queue.leak();
        queue.flush(None);
        let then = count(&given_back);
        queue.end();
        reaper.join().unwrap();
        assert_eq!(usize::from(other.join().unwrap()), then, "what was taken was done, and nothing else");
        assert_eq!(count(&given_back), then, "it was given back behind the back of who leaks");
    });
}
