#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::queue::{Queue, Status, Work};

/// Longer than it takes to wake a thread on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A job that adds itself again when it runs, so that the queue is never empty.
struct Repeating {
    queue: Arc<Queue<Repeating>>,
    stop: Arc<AtomicBool>,
    begin: Instant,
}

impl Work for Repeating {
    fn status(&self) -> Status {
        Status::Ready
    }

    fn run(self, _: &Status) -> Option<Self> {
        if !self.stop.load(Ordering::Relaxed) {
            assert!(self.begin.elapsed() < TIMEOUT, "it was not stopped");
            self.queue.clone().add(self);
        }
        None
    }
}

#[test]
fn flush_does_not_wait_for_jobs_added_later() {
    let (queue, stop) = (Arc::new(Queue::default()), Arc::new(AtomicBool::new(false)));
    queue.add(Repeating { queue: queue.clone(), stop: stop.clone(), begin: Instant::now() });
    let jobs = queue.clone();
    let thread = std::thread::spawn(move || jobs.run());
    let deadline = Instant::now() + TIMEOUT;
    queue.flush(Some(deadline));
    assert!(Instant::now() < deadline, "flush waited for later jobs");
    stop.store(true, Ordering::Relaxed);
    queue.end();
    thread.join().unwrap();
}
