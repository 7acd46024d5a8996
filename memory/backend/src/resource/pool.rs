//! Freed memory, kept for the next one who asks for as much. tests/models runs this very file in every order of its threads.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::sync::{Arc, AtomicUsize, Mutex, MutexGuard};
use super::{Budget, HostMemory, Refusal, Region, Request, Resource, Uses};
use crate::device::Stream;

/// Free lists by size class, four classes to a doubling: a block wastes at most a fifth of its size, and its reuse is
/// a push or a pop. What is kept counts against `cap_bytes`, and against the budget where there is one. For devices
/// with immediate streams only: a block is reused from the moment in which it comes back.
pub(crate) struct Pool<R: Resource> {
    inner: R,
    cap_bytes: usize,
    budget: Option<Arc<Budget>>,
    kept_bytes: AtomicUsize,
    classes: Box<[Mutex<Vec<Region>>]>,
}

impl<R: Resource> Pool<R> {
    pub(crate) fn new(inner: R, cap_bytes: usize, budget: Option<Arc<Budget>>) -> Self {
        let classes = (0..N_CLASSES).map(|_| Mutex::new(Vec::new())).collect();
        Self { inner, cap_bytes, budget, kept_bytes: AtomicUsize::new(0), classes }
    }

    fn class(&self, index: usize) -> Option<MutexGuard<'_, Vec<Region>>> {
        self.classes.get(index).map(|list| list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts `bytes` as kept, or says that there is no room for them. The cap makes room by evicting others; the
    /// budget does not, since what it lacks room for is better not kept at all.
    fn keep(&self, bytes: usize, class_index: usize) -> bool {
        if bytes > self.cap_bytes || self.budget.as_ref().is_some_and(|budget| budget.charge(bytes).is_err())
        {
            return false;
        }
        let over = |kept: usize| kept.saturating_add(bytes).saturating_sub(self.cap_bytes);
        if over(self.kept_bytes.load(Ordering::Relaxed)) > 0 {
            self.evict(over(self.kept_bytes.load(Ordering::Relaxed)), Some(class_index));
        }
        if over(self.kept_bytes.fetch_add(bytes, Ordering::Relaxed)) == 0 {
            return true;
        }
        self.unkeep(bytes);
        false
    }

    fn unkeep(&self, bytes: usize) {
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(budget) = &self.budget {
            budget.give_back(bytes);
        }
    }

    /// Largest first, which is fewest calls; `spared` keeps what it has.
    fn evict(&self, bytes: usize, spared: Option<usize>) -> usize {
        let mut freed = 0;
        for index in (0..N_CLASSES).rev().filter(|index| Some(*index) != spared) {
            while freed < bytes {
                // The lock ends with this statement: giving pages back to the system is slow.
                let Some(region) = self.class(index).and_then(|mut list| list.pop()) else { break };
                freed += region.request.bytes;
                self.unkeep(region.request.bytes);
                self.inner.release(region, &[], false);
            }
        }
        freed
    }
}

impl<R: Resource> Resource for Pool<R> {
    fn allocate(&self, request: Request, stream: &Stream) -> Result<Region, Refusal> {
        let Some(class) = Class::of(request) else { return self.inner.allocate(request, stream) };
        let kept = self.class(class.index).and_then(|mut list| list.pop());
        let region = match kept {
            Some(region) => {
                self.unkeep(class.bytes);
                region
            }
            None => self.inner.allocate(class.request(), stream)?,
        };
        Ok(Region { request, ..region })
    }

    fn release(&self, region: Region, uses: Uses<'_>, lent: bool) {
        let Some(class) = Class::of(region.request) else { return self.inner.release(region, uses, lent) };
        let region = Region { request: class.request(), ..region };
        let room = self.keep(class.bytes, class.index);
        match self.class(class.index) {
            Some(mut list) if room => list.push(region),
            _ => self.inner.release(region, uses, lent),
        }
    }

    fn trim(&self, bytes: usize) -> usize {
        let freed = self.evict(bytes, None);
        freed + self.inner.trim(bytes.saturating_sub(freed))
    }

    fn cached_bytes(&self) -> usize {
        self.kept_bytes.load(Ordering::Relaxed) + self.inner.cached_bytes()
    }
}

impl<R: Resource> Drop for Pool<R> {
    fn drop(&mut self) {
        self.evict(usize::MAX, None);
    }
}

/// Larger blocks are not kept.
const LARGEST_BYTES: usize = 1 << 30;
const N_CLASSES: usize = 4 + (LARGEST_BYTES.ilog2() as usize - 8) * 4;

/// 64, 128, 192, 256, then four steps to each doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    index: usize,
    bytes: usize,
}

impl Class {
    /// `None` for what passes the pool by: very large blocks, and alignments that a class does not have by itself.
    fn of(request: Request) -> Option<Self> {
        let Request { bytes, alignment } = request;
        let class = if bytes <= 256 {
            let index = bytes.max(1).div_ceil(64) - 1;
            Class { index, bytes: (index + 1) * 64 }
        } else if bytes <= LARGEST_BYTES {
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
