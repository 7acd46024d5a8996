//! Policies for the memory of all devices.

use std::sync::Arc;

use crossdock_plugin_api::Device;

use crate::cuda::Allocator;
use crate::fault::Faults;
use crate::resource::{Budget, Faulty, Limited, Pool, Resource, SharedFiles};

/// The budget, the size of the pools, and the fault plan.
#[derive(Clone)]
pub(crate) struct Policies {
    budget: Option<Arc<Budget>>,
    pool_bytes: usize,
    faults: Option<Faults>,
    /// The allocators of an application.
    allocators: Vec<(Device, Arc<Allocator>)>,
}

/// Size of the pool of pinned memory, as a multiple of the size of the pools of other host memory.
/// The pool is large because pinning memory is slow (0.5 s per GiB).
const PINNED_POOL_FACTOR: usize = 8;

impl Policies {
    pub(crate) fn new(limit_bytes: Option<usize>, pool_bytes: usize, faults: Option<Faults>) -> Self {
        let budget = limit_bytes.map(|bytes| Arc::new(Budget::new(bytes)));
        Self { budget, pool_bytes, faults, allocators: Vec::new() }
    }

    pub(crate) fn with_allocators(self, allocators: Vec<(Device, Arc<Allocator>)>) -> Self {
        Self { allocators, ..self }
    }

    /// The application's allocator for a device.
    pub(crate) fn allocator(&self, device: Device) -> Option<Arc<Allocator>> {
        self.allocators.iter().rev().find(|(of, _)| *of == device).map(|(_, allocator)| allocator.clone())
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

    /// Maximum number of bytes that the pool of pinned memory caches.
    pub(crate) fn pinned_pool_bytes(&self) -> usize {
        self.pool_bytes.saturating_mul(PINNED_POOL_FACTOR)
    }

    /// Maximum number of bytes that the pool of a CUDA device caches. Unless pools are disabled,
    /// only the budget limits this number, because an allocation by the driver takes 50 times as
    /// long as the reuse of cached memory.
    pub(crate) fn device_pool_bytes(&self) -> u64 {
        match self.pool_bytes {
            0 => 0,
            _ => self.limit_bytes().map_or(u64::MAX, |bytes| bytes as u64),
        }
    }

    /// The host memory for other processes. As much of it is kept for reuse as of other memory.
    pub(crate) fn shared_files(&self) -> SharedFiles {
        SharedFiles::new(self.pool_bytes, self.budget.clone())
    }

    /// Adds a pool to `memory`, unless pools are disabled.
    pub(crate) fn pooled(&self, memory: impl Resource + 'static) -> Box<dyn Resource> {
        if self.pool_bytes == 0 {
            return Box::new(memory);
        }
        Box::new(Pool::new(memory, self.pool_bytes, self.budget.clone()))
    }

    /// Applies the budget and the fault plan to `memory`.
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
