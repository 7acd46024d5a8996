//! Caches freed memory for reuse. tests/models runs this file under loom.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::sync::{Arc, AtomicUsize, Mutex, MutexGuard};
use super::{AllocError, Budget, HostMemory, Region, Request, Resource, Uses};
use crate::device::Stream;

/// Keeps one free list per size class, so that caching a block is a push and reusing it is a pop.
/// There are four classes per doubling of the size, so a block of more than 256 bytes wastes at
/// most a fifth of its size. Cached bytes count against `cap_bytes`, and against the budget if
/// there is one. A block may be reused as soon as it is released, so on devices whose streams do
/// not run work immediately, `Deferred` must delay the release.
pub(crate) struct Pool<R: Resource> {
    inner: R,
    cap_bytes: usize,
    budget: Option<Arc<Budget>>,
    cached_bytes: AtomicUsize,
    classes: Box<[Mutex<Vec<Region>>]>,
}

impl<R: Resource> Pool<R> {
    pub(crate) fn new(inner: R, cap_bytes: usize, budget: Option<Arc<Budget>>) -> Self {
        let classes = (0..N_CLASSES).map(|_| Mutex::new(Vec::new())).collect();
        Self { inner, cap_bytes, budget, cached_bytes: AtomicUsize::new(0), classes }
    }

    fn class(&self, index: usize) -> Option<MutexGuard<'_, Vec<Region>>> {
        self.classes.get(index).map(|list| list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts `bytes` as cached. Returns `false` if the block must not be cached. If the cap would
    /// be exceeded, blocks of other classes are evicted. If the budget would be exceeded, nothing
    /// is evicted and the result is `false`.
    fn try_count(&self, bytes: usize, class_index: usize) -> bool {
        if bytes > self.cap_bytes || self.budget.as_ref().is_some_and(|budget| budget.charge(bytes).is_err())
        {
            return false;
        }
        let excess = |cached: usize| cached.saturating_add(bytes).saturating_sub(self.cap_bytes);
        if excess(self.cached_bytes.load(Ordering::Relaxed)) > 0 {
            self.evict(excess(self.cached_bytes.load(Ordering::Relaxed)), Some(class_index));
        }
        if excess(self.cached_bytes.fetch_add(bytes, Ordering::Relaxed)) == 0 {
            return true;
        }
        self.uncount(bytes);
        false
    }

    fn uncount(&self, bytes: usize) {
        self.cached_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.release(bytes);
        }
    }

    /// Releases cached blocks until at least `bytes` bytes are freed, and returns the number of
    /// freed bytes. Begins with the largest blocks, because this needs the fewest calls, and skips
    /// the class `spared`.
    fn evict(&self, bytes: usize, spared: Option<usize>) -> usize {
        let mut freed = 0;
        for index in (0..N_CLASSES).rev().filter(|index| Some(*index) != spared) {
            while freed < bytes {
                // The lock is released at the end of this statement, because returning pages to the
                // system is slow.
                let Some(region) = self.class(index).and_then(|mut list| list.pop()) else { break };
                freed += region.request.bytes;
                self.uncount(region.request.bytes);
                self.inner.release(region, &[], false);
            }
        }
        freed
    }
}

impl<R: Resource> Resource for Pool<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, AllocError> {
        let Some(class) = Class::of(request) else { return self.inner.allocate(request, stream) };
        let cached = self.class(class.index).and_then(|mut list| list.pop());
        let region = match cached {
            Some(region) => {
                self.uncount(class.bytes);
                region
            }
            None => self.inner.allocate(class.request(), stream)?,
        };
        Ok(Region { request, ..region })
    }

    fn release(&self, region: Region, uses: Uses<'_>, exported: bool) {
        let Some(class) = Class::of(region.request) else {
            return self.inner.release(region, uses, exported);
        };
        let region = Region { request: class.request(), ..region };
        let is_counted = self.try_count(class.bytes, class.index);
        match self.class(class.index) {
            Some(mut list) if is_counted => list.push(region),
            _ => self.inner.release(region, uses, exported),
        }
    }

    fn trim(&self, bytes: usize) -> usize {
        let freed = self.evict(bytes, None);
        freed + self.inner.trim(bytes.saturating_sub(freed))
    }

    fn cached_bytes(&self) -> usize {
        self.cached_bytes.load(Ordering::Relaxed) + self.inner.cached_bytes()
    }
}

impl<R: Resource> Drop for Pool<R> {
    fn drop(&mut self) {
        self.evict(usize::MAX, None);
    }
}

/// Maximum size in bytes of a cached block.
const MAX_BLOCK_BYTES: usize = 1 << 30;
const N_CLASSES: usize = 4 + (MAX_BLOCK_BYTES.ilog2() as usize - 8) * 4;

/// A size class. The smallest sizes are 64, 128, 192 and 256 bytes. Above 256 bytes, there are four
/// classes per doubling of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    index: usize,
    bytes: usize,
}

impl Class {
    /// The class of a request. A request bypasses the pool (`None`) if it has more than
    /// [`MAX_BLOCK_BYTES`] bytes, or a greater alignment than the blocks of its class.
    fn of(request: Request) -> Option<Self> {
        let Request { bytes, alignment } = request;
        let class = if bytes <= 256 {
            let index = bytes.max(1).div_ceil(64) - 1;
            Class { index, bytes: (index + 1) * 64 }
        } else if bytes <= MAX_BLOCK_BYTES {
            let doubling = (bytes - 1).ilog2() as usize;
            let step = 1 << (doubling - 2);
            let steps = (bytes - (1 << doubling)).div_ceil(step);
            Class { index: 4 + (doubling - 8) * 4 + steps - 1, bytes: (1 << doubling) + steps * step }
        } else {
            return None;
        };
        (alignment <= HostMemory::natural_alignment(class.bytes)).then_some(class)
    }

    fn request(self) -> Request {
        Request { bytes: self.bytes, alignment: HostMemory::natural_alignment(self.bytes) }
    }
}
