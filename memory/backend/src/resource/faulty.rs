//! Makes allocations fail, for tests.

use super::{AllocError, Region, Request, Resource, Uses};
use crate::device::Stream;
use crate::fault::{Faults, Operation};

/// Returns an error for the allocations that the fault plan names.
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
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        self.faults.pass(Operation::Allocate).map_err(|occurrence| AllocError::Injected { occurrence })?;
        self.inner.allocate(request, stream)
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        self.inner.release(region, uses, exported);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
