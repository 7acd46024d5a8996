//! Allocates host memory at addresses that the host cannot dereference.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{AllocError, MAX_PAGE_BYTES, Region, Request, Resource, Uses, last_os_error};
use crate::device::Stream;

/// Maps an anonymous file twice for each block. The mapping at the public address has no access
/// rights, so that code that dereferences the address as host memory faults. The other mapping can
/// be read and written, and only this crate has its address.
pub(crate) struct AliasedMemory;

impl Resource for AliasedMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let bytes = mapped_bytes(request)?;
        let file = File::new(bytes)?;
        let address = Mapping::new(&file, bytes, libc::PROT_NONE, request.alignment)?;
        let reachable = Mapping::new(&file, bytes, libc::PROT_READ | libc::PROT_WRITE, request.alignment)?;
        Ok(Region {
            address: address.into_address(),
            reachable: reachable.into_address(),
            request,
            home: std::ptr::null_mut(),
        })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _exported: bool) {
        if let Ok(bytes) = mapped_bytes(region.request) {
            drop(Mapping { start: region.address, bytes });
            drop(Mapping { start: region.reachable, bytes });
        }
    }

    fn trim(&self, _bytes: usize) -> usize {
        0
    }

    fn cached_bytes(&self) -> usize {
        0
    }
}

fn mapped_bytes(request: Request) -> Result<usize, AllocError> {
    if request.bytes > isize::MAX as usize - MAX_PAGE_BYTES - request.alignment {
        return Err(AllocError::TooLarge);
    }
    Ok(request.bytes.max(1).next_multiple_of(MAX_PAGE_BYTES))
}

/// The descriptor of an anonymous file. The mappings keep the contents alive after the descriptor
/// is closed.
struct File(i32);

impl File {
    fn new(bytes: usize) -> Result<Self, AllocError> {
        // SAFETY: the name is a NUL-terminated constant.
        let fd = unsafe { libc::memfd_create(c"crossdock-untouchable".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(last_os_error());
        }
        let file = Self(fd);
        // SAFETY: the descriptor was opened above, and `file` owns it.
        if unsafe { libc::ftruncate64(file.0, bytes as i64) } != 0 {
            return Err(last_os_error());
        }
        Ok(file)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: `self` owns the descriptor, and `drop` runs once.
        unsafe { libc::close(self.0) };
    }
}

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, bytes: usize, rights: i32, alignment: usize) -> Result<Self, AllocError> {
        // To meet any alignment, reserves more address space than necessary, maps the file over an
        // aligned part of it, and unmaps the rest.
        let slack = if alignment > 4096 { alignment } else { 0 };
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + slack,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_os_error());
        }
        let start = start.cast::<u8>();
        let offset = if slack == 0 { 0 } else { start.align_offset(alignment).min(slack) };
        // SAFETY: `offset`, `bytes` and `slack - offset` add up to the size that was reserved
        // above, and the file has `bytes` bytes.
        unsafe {
            let aligned = start.add(offset);
            if offset > 0 {
                libc::munmap(start.cast::<c_void>(), offset);
            }
            if slack > offset {
                libc::munmap(aligned.add(bytes).cast(), slack - offset);
            }
            let reserved = Self {
                start: NonNull::new(aligned).ok_or(AllocError::System { errno: libc::ENOMEM })?,
                bytes,
            };
            let mapped =
                libc::mmap(aligned.cast(), bytes, rights, libc::MAP_SHARED | libc::MAP_FIXED, file.0, 0);
            if mapped == libc::MAP_FAILED { Err(last_os_error()) } else { Ok(reserved) }
        }
    }

    fn into_address(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these pages for this value alone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn dropping_a_file_closes_its_descriptor() {
        // Another thread may reuse the descriptor's number at once, for a file with another inode.
        let inode = |fd: i32| std::fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|file| file.ino());
        let file = File::new(MAX_PAGE_BYTES).unwrap();
        let (fd, before) = (file.0, inode(file.0));
        drop(file);
        assert!(before.is_some());
        assert_ne!(inode(fd), before);
    }
}
