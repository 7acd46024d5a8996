#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::waiting::{Counted, Waiting};

/// Longer than any machine takes to wake a thread.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Brings the next one when it is dropped, so that there is always one that is idle.
struct Link {
    waiting: Arc<Waiting<Link>>,
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
        if !self.is_over.load(Ordering::Relaxed) {
            assert!(self.begin.elapsed() < HANGS_AFTER, "there is no end to it");
            let Self { waiting, is_over, begin } = &*self;
            let next = Link { waiting: waiting.clone(), is_over: is_over.clone(), begin: *begin };
            waiting.add(next);
        }
    }
}

#[test]
fn who_waits_for_what_is_idle_by_now_is_not_kept_by_what_comes_later() {
    let (waiting, is_over) = (Arc::new(Waiting::default()), Arc::new(AtomicBool::new(false)));
    waiting.add(Link { waiting: waiting.clone(), is_over: is_over.clone(), begin: Instant::now() });
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
