//! Fault injection for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation that a fault plan can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An allocation of pinned or other memory. If an allocation is tried again after the pools
    /// were trimmed, the second attempt counts as a further allocation.
    Allocate,
    /// A call of `copy` or `fill`.
    Copy,
    /// The launch of a kernel.
    Launch,
    /// The recording of an event.
    Event,
}

/// A fault plan. Clones share the plan: pass one clone to [`crate::BackendBuilder::faults`], and
/// keep another clone to control the plan.
#[derive(Clone, Default)]
pub struct Faults(Arc<[Counter; 4]>);

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    /// Number of the operation that fails; 0 if none fails.
    failing: AtomicU64,
}

impl Faults {
    /// Creates a plan that counts all operations and lets none of them fail.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one operation of this kind fail: the `nth` operation from now on, where 1 is the next
    /// one. 0 cancels the fault.
    pub fn fail(&self, operation: Operation, nth: u64) {
        let counter = self.counter(operation);
        let failing = if nth == 0 { 0 } else { counter.count.load(Ordering::Relaxed).saturating_add(nth) };
        counter.failing.store(failing, Ordering::Relaxed);
    }

    /// Number of operations of this kind so far, including failed operations.
    pub fn count(&self, operation: Operation) -> u64 {
        self.counter(operation).count.load(Ordering::Relaxed)
    }

    /// Counts an operation. If it must fail, returns its number as the error.
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
