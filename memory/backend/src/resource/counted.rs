//! Memory that somebody holds, on the books.

use std::sync::Arc;

use super::{Refusal, Region, Request, Resource, Uses};
use crate::device::Stream;
use crate::ledger::Page;

/// Counts what one account holds on one device.
pub(crate) struct Counted<R> {
    inner: R,
    page: Arc<Page>,
    device_index: usize,
}

impl<R> Counted<R> {
    pub(crate) fn new(inner: R, page: Arc<Page>, device_index: usize) -> Self {
        Self { inner, page, device_index }
    }
}

impl<R: Resource> Resource for Counted<R> {
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
