//! What applies to every device's memory.

use std::sync::Arc;

use crate::fault::Faults;
use crate::resource::{Budget, Faulty, Limited, Pool, Resource};

/// The budget, the size of the pools, and the fault plan.
#[derive(Clone)]
pub(crate) struct Policies {
    budget: Option<Arc<Budget>>,
    pool_bytes: usize,
    faults: Option<Faults>,
}

/// Pinned memory is so slow to get (half a second a GiB) that more of it is kept than of other host memory.
const PINNED_POOLS: usize = 8;

impl Policies {
    pub(crate) fn new(limit_bytes: Option<usize>, pool_bytes: usize, faults: Option<Faults>) -> Self {
        Self { budget: limit_bytes.map(|bytes| Arc::new(Budget::new(bytes))), pool_bytes, faults }
    }

    pub(crate) fn budget(&self) -> Option<Arc<Budget>> {
        self.budget.clone()
    }

    pub(crate) fn limit_bytes(&self) -> Option<usize> {
        self.budget.as_ref().map(|budget| budget.limit_bytes())
    }

    pub(crate) fn faults(&self) -> Option<&Faults> {
        self.faults.as_ref()
    }

    /// What the pool of pinned memory keeps at most.
    pub(crate) fn pinned_pool_bytes(&self) -> usize {
        self.pool_bytes.saturating_mul(PINNED_POOLS)
    }

    /// What a device's own pool keeps at most: all of it, since getting it again costs fifty times a reuse.
    pub(crate) fn keep_on_device_bytes(&self) -> u64 {
        match self.pool_bytes {
            0 => 0,
            _ => self.limit_bytes().map_or(u64::MAX, |bytes| bytes as u64),
        }
    }

    /// Memory with a pool over it, unless pools keep nothing.
    pub(crate) fn pooled(&self, memory: impl Resource + 'static) -> Box<dyn Resource> {
        if self.pool_bytes == 0 {
            return Box::new(memory);
        }
        Box::new(Pool::new(memory, self.pool_bytes, self.budget.clone()))
    }

    /// The budget and the faults over a device's memory.
    pub(crate) fn apply(&self, mut memory: Box<dyn Resource>) -> Box<dyn Resource> {
        if let Some(budget) = &self.budget {
            memory = Box::new(Limited::new(memory, budget.clone()));
        }
        if let Some(faults) = &self.faults {
            memory = Box::new(Faulty::new(memory, faults.clone()));
        }
        memory
    }
}
