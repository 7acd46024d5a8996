//! Tracks the live blocks of a device whose public addresses differ from the addresses of its
//! memory.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::{AllocError, Region, Request, Resource, Uses};
use crate::device::Stream;

/// The live blocks of a device, by address.
#[derive(Default)]
pub(crate) struct Ranges(RwLock<BTreeMap<usize, Range>>);

/// One live block.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub base: usize,
    pub bytes: usize,
    reachable: NonNull<u8>,
}

// SAFETY: `reachable` is only stored here. Code that dereferences it states in its own SAFETY
// comment why that is sound.
unsafe impl Send for Range {}
// SAFETY: `reachable` is only stored here. Code that dereferences it states in its own SAFETY
// comment why that is sound.
unsafe impl Sync for Range {}

impl Range {
    /// Translates the public address `address` to the address at which this crate accesses the same
    /// `bytes` bytes. Returns `None` if the bytes are not all in this range.
    pub(crate) fn translate(&self, address: usize, bytes: usize) -> Option<*mut u8> {
        let offset = address.checked_sub(self.base)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        fits.then(|| self.reachable.as_ptr().wrapping_add(offset))
    }
}

impl Ranges {
    /// The live block that contains `address`. The address after the last byte of a block does not
    /// belong to the block.
    pub(crate) fn find(&self, address: usize) -> Option<Range> {
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let range = ranges.range(..=address).next_back().map(|(_, range)| *range)?;
        (address - range.base < range.bytes.max(1)).then_some(range)
    }
}

/// Registers all allocations in [`Ranges`].
pub(crate) struct Published<R> {
    inner: R,
    ranges: Arc<Ranges>,
}

impl<R> Published<R> {
    pub(crate) fn new(inner: R, ranges: Arc<Ranges>) -> Self {
        Self { inner, ranges }
    }
}

impl<R: Resource> Resource for Published<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        let region = self.inner.allocate(request, stream)?;
        let base = region.address.as_ptr() as usize;
        let range = Range { base, bytes: request.bytes, reachable: region.reachable };
        self.ranges.0.write().unwrap_or_else(PoisonError::into_inner).insert(base, range);
        Ok(region)
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        let base = region.address.as_ptr() as usize;
        self.ranges.0.write().unwrap_or_else(PoisonError::into_inner).remove(&base);
        self.inner.release(region, uses, exported);
    }

    fn trim(&self, bytes: usize) -> usize {
        self.inner.trim(bytes)
    }

    fn cached_bytes(&self) -> usize {
        self.inner.cached_bytes()
    }
}
