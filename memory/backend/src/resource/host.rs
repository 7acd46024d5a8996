//! Allocates host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use super::{AllocError, MAX_PAGE_BYTES, MIN_ALIGNMENT, Region, Request, Resource, Uses, last_os_error};
use crate::device::Stream;

/// Minimum size in bytes of blocks that get their own mapping, so that pages that are never
/// accessed use no memory, and freed pages return to the system.
const MIN_MAPPED_BYTES: usize = 256 << 10;
/// Minimum size in bytes of blocks that are aligned to a huge page and request huge pages, which
/// reduces the number of page faults by a factor of 512.
const MIN_HUGE_BYTES: usize = HUGE_PAGE_BYTES;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Allocates small blocks from the process's allocator, and maps large ones.
pub(crate) struct HostMemory;

impl HostMemory {
    /// The alignment in bytes that a block of this size has even if a smaller alignment is
    /// requested.
    pub(crate) fn natural_alignment(bytes: usize) -> usize {
        if bytes >= MIN_MAPPED_BYTES { 4096 } else { MIN_ALIGNMENT }
    }
}

impl Resource for HostMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let address = match Plan::of(request)? {
            Plan::Heap(layout) => {
                // SAFETY: `alloc` requires a layout of at least one byte, which the `max(1)` in
                // `Plan::of` ensures.
                NonNull::new(unsafe { alloc(layout) }).ok_or(AllocError::System { errno: libc::ENOMEM })?
            }
            Plan::Map { bytes, alignment } => map(bytes, alignment)?,
        };
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _exported: bool) {
        match Plan::of(region.request) {
            // SAFETY: `allocate` used this layout for the same request, and `region`, taken by
            // value, is the only owner.
            Ok(Plan::Heap(layout)) => unsafe { dealloc(region.address.as_ptr(), layout) },
            // SAFETY: `allocate` mapped this many bytes at this address for the same request, and
            // `region` is the only owner.
            Ok(Plan::Map { bytes, .. }) => unsafe { unmap(region.address, bytes) },
            // A rejected request was never allocated.
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
    fn of(request: Request) -> Result<Self, AllocError> {
        let Request { bytes, alignment } = request;
        if bytes < MIN_MAPPED_BYTES && alignment <= 4096 {
            let layout = Layout::from_size_align(bytes.max(1), alignment.max(MIN_ALIGNMENT));
            return layout.map(Plan::Heap).map_err(|_| AllocError::TooLarge);
        }
        let alignment = if bytes >= MIN_HUGE_BYTES { alignment.max(HUGE_PAGE_BYTES) } else { alignment };
        // With this bound, the sums of sizes here and in `map` do not overflow.
        if bytes > isize::MAX as usize - MAX_PAGE_BYTES - alignment {
            return Err(AllocError::TooLarge);
        }
        Ok(Plan::Map { bytes: bytes.max(1).next_multiple_of(MAX_PAGE_BYTES), alignment })
    }
}

/// Maps zeroed pages; `bytes` must be a multiple of [`MAX_PAGE_BYTES`].
fn map(bytes: usize, alignment: usize) -> Result<NonNull<u8>, AllocError> {
    let slack = if alignment > 4096 { alignment } else { 0 };
    let total_bytes = bytes + slack;
    // SAFETY: a new private mapping at an address that the kernel chooses overlaps no existing
    // memory.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            total_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(last_os_error());
    }
    let start = start.cast::<u8>();
    let offset = if slack == 0 { 0 } else { start.align_offset(alignment).min(slack) };
    // SAFETY: `offset`, `bytes` and `slack - offset` add up to the `total_bytes` that were mapped
    // above, and the ranges that are unmapped at both ends consist of whole pages.
    unsafe {
        let aligned = start.add(offset);
        if offset > 0 {
            libc::munmap(start.cast(), offset);
        }
        if slack > offset {
            libc::munmap(aligned.add(bytes).cast(), slack - offset);
        }
        if bytes >= MIN_HUGE_BYTES {
            // `MADV_HUGEPAGE` is a hint. The system ignores it if huge pages are disabled.
            libc::madvise(aligned.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        NonNull::new(aligned).ok_or(AllocError::System { errno: libc::ENOMEM })
    }
}

/// # Safety
/// `map` returned `address` for `bytes`, and the range is not used any more.
unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    // SAFETY: by this function's contract the range is a mapping of its own that is not used any
    // more.
    unsafe { libc::munmap(address.as_ptr().cast(), bytes) };
}
