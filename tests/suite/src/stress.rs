//! Code that the stress tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number in an environment variable, or the default if the variable is not set.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("the variable is a number"))
}

/// Counts rounds. Aborts the process if no round ends within a time limit that no correct round
/// exceeds.
#[derive(Clone)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    const HANGS_AFTER: Duration = Duration::from_secs(120);

    /// Starts to watch a test.
    pub fn start() -> Self {
        let progress = Self(Arc::default());
        let watched = progress.clone();
        std::thread::spawn(move || {
            let mut last = 0;
            loop {
                std::thread::sleep(Self::HANGS_AFTER);
                match watched.0.load(Ordering::Relaxed) {
                    u64::MAX => return,
                    now if now == last => {
                        eprintln!("no progress after {now} rounds");
                        std::process::abort();
                    }
                    now => last = now,
                }
            }
        });
        progress
    }

    /// Counts a completed round.
    pub fn count_round(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops watching, after all work and all waits are done.
    pub fn finish(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}
