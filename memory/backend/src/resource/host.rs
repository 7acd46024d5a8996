//! Ordinary memory of the process.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use super::{MIN_ALIGNMENT, PAGE_BYTES, Refusal, Region, Request, Resource, Uses, system_refusal};
use crate::device::Stream;

/// From here on a block has pages of its own, so that what is never touched costs nothing and what is freed goes back.
const MAP_FROM_BYTES: usize = 256 << 10;
/// From here on a block begins at a huge page and asks for such, so that first touches fault 512 times less.
const HUGE_FROM_BYTES: usize = HUGE_PAGE_BYTES;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Small blocks from the process's allocator, large ones as mappings of their own.
pub(crate) struct HostMemory;

impl HostMemory {
    /// How a block of this size comes aligned without asking for more.
    pub(crate) fn natural_alignment(bytes: usize) -> usize {
        if bytes >= MAP_FROM_BYTES { 4096 } else { MIN_ALIGNMENT }
    }
}

impl Resource for HostMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, Refusal> {
        let address = match Plan::of(request)? {
            Plan::Heap(layout) => {
                // SAFETY: `Plan::of` never makes a layout of zero bytes.
                NonNull::new(unsafe { alloc(layout) }).ok_or(Refusal::System { errno: libc::ENOMEM })?
            }
            Plan::Map { bytes, alignment } => map(bytes, alignment)?,
        };
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _lent: bool) {
        match Plan::of(region.request) {
            // SAFETY: `allocate` made it by this very layout, and the region, taken by value, is its one owner.
            Ok(Plan::Heap(layout)) => unsafe { dealloc(region.address.as_ptr(), layout) },
            // SAFETY: `allocate` mapped exactly this many bytes here.
            Ok(Plan::Map { bytes, .. }) => unsafe { unmap(region.address, bytes) },
            // What was refused was never given.
            Err(_) => {}
        }
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

enum Plan {
    Heap(Layout),
    Map { bytes: usize, alignment: usize },
}

impl Plan {
    fn of(request: Request) -> Result<Self, Refusal> {
        let Request { bytes, alignment } = request;
        if bytes < MAP_FROM_BYTES && alignment <= 4096 {
            let layout = Layout::from_size_align(bytes.max(1), alignment.max(MIN_ALIGNMENT));
            return layout.map(Plan::Heap).map_err(|_| Refusal::TooLarge);
        }
        let alignment = if bytes >= HUGE_FROM_BYTES { alignment.max(HUGE_PAGE_BYTES) } else { alignment };
        // Both sums that `map` makes stay below this.
        if bytes > isize::MAX as usize - PAGE_BYTES - alignment {
            return Err(Refusal::TooLarge);
        }
        Ok(Plan::Map { bytes: bytes.max(1).next_multiple_of(PAGE_BYTES), alignment })
    }
}

/// Fresh zero pages; `bytes` is a multiple of [`PAGE_BYTES`].
fn map(bytes: usize, alignment: usize) -> Result<NonNull<u8>, Refusal> {
    let slack = if alignment > 4096 { alignment } else { 0 };
    let all = bytes + slack;
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            all,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(system_refusal());
    }
    let start = start.cast::<u8>();
    let before = if slack == 0 { 0 } else { start.align_offset(alignment).min(slack) };
    // SAFETY: `before` + `bytes` + the rest are the `all` bytes just mapped, and the ends are pages of their own.
    unsafe {
        let aligned = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if slack > before {
            libc::munmap(aligned.add(bytes).cast(), slack - before);
        }
        if bytes >= HUGE_FROM_BYTES {
            // A wish: where huge pages are off nothing changes.
            libc::madvise(aligned.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        NonNull::new(aligned).ok_or(Refusal::System { errno: libc::ENOMEM })
    }
}

/// # Safety
/// `map` gave `address` for `bytes`, and nobody uses it any more.
unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    // SAFETY: by this function's own contract.
    unsafe { libc::munmap(address.as_ptr().cast(), bytes) };
}
