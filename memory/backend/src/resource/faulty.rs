//! Memory that fails when a test says so.

use super::{Refusal, Region, Request, Resource, Uses};
use crate::device::Stream;
use crate::fault::{Faults, Operation};

/// Refuses the allocations that the plan names.
pub(crate) struct Faulty<R> {
    inner: R,
    faults: Faults,
}

impl<R> Faulty<R> {
    pub(crate) fn new(inner: R, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl<R: Resource> Resource for Faulty<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        self.faults.pass(Operation::Allocate).map_err(|occurrence| Refusal::Injected { occurrence })?;
        self.inner.allocate(request, stream)
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        self.inner.release(region, uses, lent);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
