//! A budget over everything. tests/models runs this very file in every order of its threads.

use std::sync::atomic::Ordering;

use super::sync::{Arc, AtomicUsize};
use super::{Refusal, Region, Request, Resource, Uses};
use crate::device::Stream;

/// Bytes that may be held at once, over all devices: live blocks by what was asked for, kept ones by what they are.
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

    /// Takes `bytes` out of the budget, all or nothing.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Refusal> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(Refusal::OverLimit {
                limit_bytes: self.limit_bytes,
                left_bytes: self.limit_bytes.saturating_sub(used),
            }),
        }
    }

    /// Puts `bytes` that were charged back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory within a budget, which other devices may share.
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
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        if request.bytes > self.budget.limit_bytes {
            self.budget.charge(request.bytes)?;
        }
        // The memory first: a block that the pool kept has been paid for, and taking it makes the room that it needs.
        let region = self.inner.allocate(request, stream)?;
        match self.budget.charge(request.bytes) {
            Ok(()) => Ok(region),
            Err(refusal) => {
                self.inner.release(region, &[], false);
                Err(refusal)
            }
        }
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        self.budget.give_back(region.request.bytes);
        self.inner.release(region, uses, lent);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
