//! Failures on demand, so that tests reach the paths that a healthy machine never takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An allocation, pinned or not. The second try after the pool was emptied counts as one more.
    Allocate,
    /// A call of `copy` or `fill`.
    Copy,
    /// A kernel's launch.
    Launch,
    /// The recording of an event.
    Event,
}

/// A fault plan. Clones are one plan: keep one and hand the other to [`crate::BackendBuilder::faults`].
#[derive(Clone, Default)]
pub struct Faults(Arc<[Counter; 4]>);

#[derive(Default)]
struct Counter {
    seen: AtomicU64,
    /// The occurrence that fails; 0 for none.
    failing: AtomicU64,
}

impl Faults {
    /// A plan under which nothing fails, yet everything is counted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the `nth` operation from now on fail, once; 1 is the next one, 0 takes the fault back.
    pub fn fail(&self, operation: Operation, nth: u64) {
        let counter = self.counter(operation);
        let failing = if nth == 0 { 0 } else { counter.seen.load(Ordering::Relaxed).saturating_add(nth) };
        counter.failing.store(failing, Ordering::Relaxed);
    }

    /// How many such operations there have been, failed ones included.
    pub fn seen(&self, operation: Operation) -> u64 {
        self.counter(operation).seen.load(Ordering::Relaxed)
    }

    /// Counts one operation; if it is the one that fails, which it was.
    pub(crate) fn pass(&self, operation: Operation) -> Result<(), u64> {
        let counter = self.counter(operation);
        let occurrence = counter.seen.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if counter.failing.load(Ordering::Relaxed) == occurrence { Err(occurrence) } else { Ok(()) }
    }

    fn counter(&self, operation: Operation) -> &Counter {
        let [allocate, copy, launch, event] = &*self.0;
        match operation {
            Operation::Allocate => allocate,
            Operation::Copy => copy,
            Operation::Launch => launch,
            Operation::Event => event,
        }
    }
}
