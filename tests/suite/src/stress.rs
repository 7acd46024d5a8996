//! What the stress tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Counts rounds, and ends the process when there are none for longer than one takes on any machine.
#[derive(Clone)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    const HANGS_AFTER: Duration = Duration::from_secs(120);

    /// Of a test that begins now.
    pub fn watched() -> Self {
        let progress = Self(Arc::default());
        let watched = progress.clone();
        std::thread::spawn(move || {
            let mut last = 0;
            loop {
                std::thread::sleep(Self::HANGS_AFTER);
                match watched.0.load(Ordering::Relaxed) {
                    u64::MAX => return,
                    now if now == last => {
                        eprintln!("after {now} rounds nothing moves any more");
                        std::process::abort();
                    }
                    now => last = now,
                }
            }
        });
        progress
    }

    /// A round is over.
    pub fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// All is done, the waiting at the end included.
    pub fn is_over(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}
