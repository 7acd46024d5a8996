#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
