//! Counts allocations in the ledger.

use std::ops::Deref;

use super::{AllocError, Region, Request, Resource, Uses};
use crate::device::Stream;
use crate::ledger::AccountCounters;

/// Counts the allocations of one account on one device.
pub(crate) struct Counted<R, C> {
    inner: R,
    counters: C,
    device_index: usize,
}

impl<R, C> Counted<R, C> {
    pub(crate) fn new(inner: R, counters: C, device_index: usize) -> Self {
        Self { inner, counters, device_index }
    }
}

impl<R: Resource, C: Deref<Target = AccountCounters> + Send + Sync> Resource for Counted<R, C> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        let region = self.inner.allocate(request, stream)?;
        self.counters.add_block(self.device_index, request.bytes);
        Ok(region)
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        self.counters.remove_block(self.device_index, region.request.bytes);
        self.inner.release(region, uses, exported);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
