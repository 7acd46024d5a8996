//! What the stress tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Random choices: the same for the same seed, thread and round.
pub struct Choices(u64);

impl Choices {
    /// Those of a thread in a round.
    pub fn of(seed: u64, thread: u64, round: u64) -> Self {
        let mut choices = Self((seed << 40 ^ thread << 32 ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..5).for_each(|_| _ = choices.below(2));
        choices
    }

    /// The next, of so many.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    /// One of these.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
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
