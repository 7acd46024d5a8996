//! Fault injection for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation that a fault plan can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An allocation, pinned or not. The second attempt after trimming the pools counts as another
    /// allocation.
    Allocate,
    /// A call of `copy` or `fill`.
    Copy,
    /// The launch of a kernel.
    Launch,
    /// The recording of an event.
    Event,
}

/// A fault plan. Clones share the plan: pass one to [`crate::BackendBuilder::faults`] and keep the
/// other.
#[derive(Clone, Default)]
pub struct Faults(Arc<[Counter; 4]>);

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    /// The occurrence that fails; 0 for none.
    failing: AtomicU64,
}

impl Faults {
    /// A plan that fails nothing, and counts all operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails the `nth` operation from now on, once; 1 is the next one, 0 cancels the fault.
    pub fn fail(&self, operation: Operation, nth: u64) {
        let counter = self.counter(operation);
        let failing = if nth == 0 { 0 } else { counter.count.load(Ordering::Relaxed).saturating_add(nth) };
        counter.failing.store(failing, Ordering::Relaxed);
    }

    /// Number of such operations so far, including failed ones.
    pub fn count(&self, operation: Operation) -> u64 {
        self.counter(operation).count.load(Ordering::Relaxed)
    }

    /// Counts an operation. `Err` with its number if it must fail.
    pub(crate) fn pass(&self, operation: Operation) -> Result<(), u64> {
        let counter = self.counter(operation);
        let occurrence = counter.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
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
