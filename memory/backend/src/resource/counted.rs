//! Memory that somebody holds, on the books.

use std::ops::Deref;

use super::{Refusal, Region, Request, Resource, Uses};
use crate::device::Stream;
use crate::ledger::Page;

/// Counts what one account holds on one device.
pub(crate) struct Counted<R, P> {
    inner: R,
    page: P,
    device_index: usize,
}

impl<R, P> Counted<R, P> {
    pub(crate) fn new(inner: R, page: P, device_index: usize) -> Self {
        Self { inner, page, device_index }
    }
}

impl<R: Resource, P: Deref<Target = Page> + Send + Sync> Resource for Counted<R, P> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        let region = self.inner.allocate(request, stream)?;
        self.page.took(self.device_index, request.bytes);
        Ok(region)
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        self.page.gave_back(self.device_index, region.request.bytes);
        self.inner.release(region, uses, lent);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
