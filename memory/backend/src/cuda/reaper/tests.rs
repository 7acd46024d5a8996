#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::queue::{Queue, Standing, Work};

/// Longer than any machine takes to wake a thread.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Adds the next one when it is done, so that there is always one to do.
struct Link {
    queue: Arc<Queue<Link>>,
    is_over: Arc<AtomicBool>,
    begin: Instant,
}

impl Work for Link {
    fn standing(&self) -> Standing {
        Standing::Ready
    }

    fn act(self, _: &Standing) -> Option<Self> {
        if !self.is_over.load(Ordering::Relaxed) {
            assert!(self.begin.elapsed() < HANGS_AFTER, "there is no end to it");
            self.queue.clone().add(self);
        }
        None
    }
}

#[test]
fn who_waits_for_what_was_added_so_far_is_not_kept_by_what_is_added_later() {
    let (queue, is_over) = (Arc::new(Queue::default()), Arc::new(AtomicBool::new(false)));
    queue.add(Link { queue: queue.clone(), is_over: is_over.clone(), begin: Instant::now() });
    let jobs = queue.clone();
    let thread = std::thread::spawn(move || jobs.run());
    let deadline = Instant::now() + HANGS_AFTER;
    queue.flush(Some(deadline));
    assert!(Instant::now() < deadline, "it was waited for as long as others came");
    is_over.store(true, Ordering::Relaxed);
    queue.end();
    thread.join().unwrap();
}
