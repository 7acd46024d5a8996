//! Limits the memory of all devices together. tests/models runs this file under loom.

use std::sync::atomic::Ordering;

use super::sync::{Arc, AtomicUsize};
use super::{AllocError, Region, Request, Resource, Uses};
use crate::device::Stream;

/// The maximum number of bytes that all devices together may use. Live blocks count with their
/// requested size, cached blocks with their actual size.
pub(crate) struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Charges all of `bytes`, or returns an error and charges nothing.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(AllocError::OverLimit {
                limit_bytes: self.limit_bytes,
                left_bytes: self.limit_bytes.saturating_sub(used),
            }),
        }
    }

    /// Returns `bytes` charged bytes to the budget.
    pub(crate) fn release(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Limits a resource by a budget, which several devices may share.
pub(crate) struct Limited<R> {
    inner: R,
    budget: Arc<Budget>,
}

impl<R> Limited<R> {
    pub(crate) fn new(inner: R, budget: Arc<Budget>) -> Self {
        Self { inner, budget }
    }
}

impl<R: Resource> Resource for Limited<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        if request.bytes > self.budget.limit_bytes {
            self.budget.charge(request.bytes)?;
        }
        // Allocates before it charges the budget, because the budget counts a cached block until
        // the allocation takes the block out of the pool. So the charge may fit only after the
        // allocation.
        let region = self.inner.allocate(request, stream)?;
        match self.budget.charge(request.bytes) {
            Ok(()) => Ok(region),
            Err(error) => {
                self.inner.release(region, &[], false);
                Err(error)
            }
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        self.budget.release(region.request.bytes);
        self.inner.release(region, uses, exported);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
