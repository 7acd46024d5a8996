//! The host memory that stores a block's bytes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::codes::{OUT_OF_MEMORY, Outcome};

/// The page size in bytes. Host memory is aligned to pages, as in a real driver.
const PAGE: usize = 4096;
/// Number of bytes after a block that must not be written.
const GUARD_LEN: usize = 64;
const GUARD_BYTE: u8 = 0xa9;
/// The byte with which the beginning and the end of a new block are filled. The middle of a large
/// block is not filled, so that it uses no physical memory.
const FILL_BYTE: u8 = 0xcd;
const MAX_FILL_BYTES: usize = 1 << 20;
/// The maximum number of bytes that are cached for later blocks. Without the cache, mapping new
/// pages would be most of the cost of an allocation.
const MAX_CACHED_BYTES: usize = 256 << 20;

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

#[derive(Default)]
struct Cache {
    by_size: HashMap<usize, Vec<Pages>>,
    bytes: usize,
}

/// The host memory of a block, which the simulator or the caller owns.
pub(crate) enum Real {
    Own {
        pages: Pages,
        bytes: usize,
        for_host: bool,
    },
    Borrowed(*mut u8),
    /// A mapped file, which other processes may map too.
    Shared {
        pointer: *mut u8,
        size: usize,
    },
}

pub(crate) struct Pages {
    pointer: *mut u8,
    size: usize,
}

// SAFETY: no thread owns the memory, and the simulator accesses it only under its lock.
unsafe impl Send for Real {}
// SAFETY: no thread owns the memory, and the simulator accesses it only under its lock.
unsafe impl Send for Pages {}

impl Real {
    /// Allocates memory that begins and ends with [`FILL_BYTE`], followed by guard bytes. If
    /// `for_host`, the memory is unmapped when it is freed, so that later accesses fault.
    pub(crate) fn allocate(bytes: u64, for_host: bool) -> Outcome<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let whole = bytes.checked_add(GUARD_LEN).ok_or(OUT_OF_MEMORY)?;
        let pages = Pages::take(whole)?;
        let pointer = pages.pointer;
        let ends = bytes.min(MAX_FILL_BYTES);
        // SAFETY: `Pages::take` returned at least `bytes + GUARD_LEN` bytes.
        unsafe {
            pointer.write_bytes(FILL_BYTE, ends);
            pointer.add(bytes - ends).write_bytes(FILL_BYTE, ends);
            pointer.add(bytes).write_bytes(GUARD_BYTE, GUARD_LEN);
        }
        Ok(Self::Own { pages, bytes, for_host })
    }

    pub(crate) fn borrowed(pointer: *mut u8) -> Self {
        Self::Borrowed(pointer)
    }

    /// Maps a whole file.
    pub(crate) fn shared(file: std::os::fd::RawFd, bytes: u64) -> Outcome<Self> {
        let size = usize::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED, the kernel chooses a free address, so no other mapping
        // changes.
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

    /// Whether the guard bytes are unchanged.
    pub(crate) fn is_intact(&self) -> bool {
        let Self::Own { pages, bytes, .. } = self else { return true };
        // SAFETY: `allocate` requested `GUARD_LEN` bytes after the block's `bytes` bytes.
        let guard = unsafe { std::slice::from_raw_parts(pages.pointer.add(*bytes), GUARD_LEN) };
        guard.iter().all(|byte| *byte == GUARD_BYTE)
    }
}

impl Pages {
    /// Takes cached pages or maps new ones. Sizes are rounded up, so that later blocks can reuse
    /// the pages.
    fn take(bytes: usize) -> Outcome<Self> {
        let step = (bytes / 8).next_power_of_two().max(PAGE);
        let size = bytes.checked_next_multiple_of(step).ok_or(OUT_OF_MEMORY)?;
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache.get_or_insert_default();
        if let Some(pages) = cache.by_size.get_mut(&size).and_then(Vec::pop) {
            cache.bytes -= size;
            return Ok(pages);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED, the kernel chooses a free address, so no other mapping
        // changes.
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
            // SAFETY: `shared` mapped `size` bytes here, and only this drop unmaps them.
            unsafe { libc::munmap(pointer.cast(), *size) };
        }
        let Self::Own { pages, for_host, .. } = self else { return };
        let (pointer, size) = (pages.pointer, pages.size);
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache.get_or_insert_default();
        if !*for_host && cache.bytes + size <= MAX_CACHED_BYTES {
            cache.bytes += size;
            cache.by_size.entry(size).or_default().push(Pages { pointer, size });
        } else {
            // SAFETY: `Pages::take` mapped `size` bytes here, and `Pages` does not unmap them
            // itself.
            unsafe { libc::munmap(pointer.cast(), size) };
        }
    }
}
