//! Host memory under an address that nobody may dereference.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{PAGE_BYTES, Refusal, Region, Request, Resource, Uses, system_refusal};
use crate::device::Stream;

/// Each block is one anonymous file, mapped twice: the address that is published has no access rights at all, so that
/// a read or write by code that takes it for host memory faults; the other one is known to this crate only.
pub(crate) struct AliasedMemory;

impl Resource for AliasedMemory {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, Refusal> {
        let bytes = mapped_bytes(request)?;
        let file = File::new(bytes)?;
        let address = Mapping::new(&file, bytes, libc::PROT_NONE, request.alignment)?;
        let reachable = Mapping::new(&file, bytes, libc::PROT_READ | libc::PROT_WRITE, request.alignment)?;
        Ok(Region {
            address: address.keep(),
            reachable: reachable.keep(),
            request,
            home: std::ptr::null_mut(),
        })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _lent: bool) {
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

fn mapped_bytes(request: Request) -> Result<usize, Refusal> {
    if request.bytes > isize::MAX as usize - PAGE_BYTES - request.alignment {
        return Err(Refusal::TooLarge);
    }
    Ok(request.bytes.max(1).next_multiple_of(PAGE_BYTES))
}

/// The mappings keep the file's content after the descriptor is closed.
struct File(i32);

impl File {
    fn new(bytes: usize) -> Result<Self, Refusal> {
        // SAFETY: the name is a constant with a NUL at its end.
        let fd = unsafe { libc::memfd_create(c"crossdock-untouchable".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(system_refusal());
        }
        let file = Self(fd);
        // SAFETY: the descriptor was opened above and is this struct's.
        if unsafe { libc::ftruncate64(file.0, bytes as i64) } != 0 {
            return Err(system_refusal());
        }
        Ok(file)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: owned, and closed once.
        unsafe { libc::close(self.0) };
    }
}

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, bytes: usize, rights: i32, alignment: usize) -> Result<Self, Refusal> {
        // Reserving first and mapping the file over the aligned part gives any alignment; the rest goes back.
        let slack = if alignment > 4096 { alignment } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
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
            return Err(system_refusal());
        }
        let start = start.cast::<u8>();
        let before = if slack == 0 { 0 } else { start.align_offset(alignment).min(slack) };
        // SAFETY: `before` + `bytes` + the rest are the bytes just reserved; the file covers `bytes` of them.
        unsafe {
            let aligned = start.add(before);
            if before > 0 {
                libc::munmap(start.cast::<c_void>(), before);
            }
            if slack > before {
                libc::munmap(aligned.add(bytes).cast(), slack - before);
            }
            let reserved =
                Self { start: NonNull::new(aligned).ok_or(Refusal::System { errno: libc::ENOMEM })?, bytes };
            let mapped =
                libc::mmap(aligned.cast(), bytes, rights, libc::MAP_SHARED | libc::MAP_FIXED, file.0, 0);
            if mapped == libc::MAP_FAILED { Err(system_refusal()) } else { Ok(reserved) }
        }
    }

    fn keep(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these pages were mapped by `new` for this value alone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_closed_when_it_is_dropped() {
        // Another thread may open a file of the same number at once, which is another one.
        let inode = |fd: i32| std::fs::metadata(format!("/proc/self/fd/{fd}")).ok().map(|file| file.ino());
        let file = File::new(PAGE_BYTES).unwrap();
        let (fd, before) = (file.0, inode(file.0));
        drop(file);
        assert!(before.is_some());
        assert_ne!(inode(fd), before);
    }
}
