//! Where a block's bytes really are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::codes::{OUT_OF_MEMORY, Outcome};

/// As a real driver aligns host memory.
const PAGE: usize = 4096;
/// Bytes behind a block that nobody may write.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa9;
/// What fresh memory holds, at either end of a block for so many bytes. The middle of a larger one stays untouched, and
/// costs no pages.
const NONSENSE: u8 = 0xcd;
const NONSENSE_AT_MOST: usize = 1 << 20;
/// Memory that is kept for the next blocks: fresh pages are most of what an allocation costs.
const KEPT_AT_MOST: usize = 256 << 20;

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

#[derive(Default)]
struct Kept {
    by_size: HashMap<usize, Vec<Pages>>,
    bytes: usize,
}

/// Memory of the simulator's, or of the caller's.
pub(crate) enum Real {
    Own {
        pages: Pages,
        bytes: usize,
        for_host: bool,
    },
    Borrowed(*mut u8),
    /// A file's, which other processes may map too.
    Shared {
        pointer: *mut u8,
        size: usize,
    },
}

pub(crate) struct Pages {
    pointer: *mut u8,
    size: usize,
}

// SAFETY: memory is used under the simulator's lock, on whichever thread.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Send for Pages {}

impl Real {
    /// Memory that holds nonsense, with a guard behind it. What the host may use is unmapped when it goes, so that who
    /// still does faults.
    pub(crate) fn allocate(bytes: u64, for_host: bool) -> Outcome<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let whole = bytes.checked_add(GUARD).ok_or(OUT_OF_MEMORY)?;
        let pages = Pages::take(whole)?;
        let pointer = pages.pointer;
        let ends = bytes.min(NONSENSE_AT_MOST);
        // SAFETY: within the pages, which are `bytes` and the guard at least.
        unsafe {
            pointer.write_bytes(NONSENSE, ends);
            pointer.add(bytes - ends).write_bytes(NONSENSE, ends);
            pointer.add(bytes).write_bytes(GUARD_BYTE, GUARD);
        }
        Ok(Self::Own { pages, bytes, for_host })
    }

    pub(crate) fn borrowed(pointer: *mut u8) -> Self {
        Self::Borrowed(pointer)
    }

    /// All of a file.
    pub(crate) fn shared(file: std::os::fd::RawFd, bytes: u64) -> Outcome<Self> {
        let size = usize::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, which disturbs no other.
        let pointer = unsafe { libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED, file, 0) };
        if pointer == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        Ok(Self::Shared { pointer: pointer.cast(), size })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        match self {
            Self::Own { pages, .. } => pages.pointer,
            Self::Borrowed(pointer) | Self::Shared { pointer, .. } => *pointer,
        }
    }

    /// Whether nobody wrote behind the end.
    pub(crate) fn is_intact(&self) -> bool {
        let Self::Own { pages, bytes, .. } = self else { return true };
        // SAFETY: the guard is within the pages.
        let guard = unsafe { std::slice::from_raw_parts(pages.pointer.add(*bytes), GUARD) };
        guard.iter().all(|byte| *byte == GUARD_BYTE)
    }
}

impl Pages {
    /// Sizes come in steps, so that pages fit other blocks later.
    fn take(bytes: usize) -> Outcome<Self> {
        let step = (bytes / 8).next_power_of_two().max(PAGE);
        let size = bytes.checked_next_multiple_of(step).ok_or(OUT_OF_MEMORY)?;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        if let Some(pages) = kept.by_size.get_mut(&size).and_then(Vec::pop) {
            kept.bytes -= size;
            return Ok(pages);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, which disturbs no other.
        let pointer = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        if pointer == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        Ok(Self { pointer: pointer.cast(), size })
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Self::Shared { pointer, size } = self {
            // SAFETY: mapped so, and nobody else unmaps it.
            unsafe { libc::munmap(pointer.cast(), *size) };
        }
        let Self::Own { pages, for_host, .. } = self else { return };
        let (pointer, size) = (pages.pointer, pages.size);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_default();
        if !*for_host && kept.bytes + size <= KEPT_AT_MOST {
            kept.bytes += size;
            kept.by_size.entry(size).or_default().push(Pages { pointer, size });
        } else {
            // SAFETY: mapped so, and `Pages` itself frees nothing.
            unsafe { libc::munmap(pointer.cast(), size) };
        }
    }
}
