//! Shared host memory that only the host can write.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Seals that prevent changes of the length, and of the bytes except through mappings that exist.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// A mapped file in memory. The process that created it can write it, and other processes can only
/// read it.
pub struct SegmentFile {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping stays at its address, and any thread may unmap it.
unsafe impl Send for SegmentFile {}
// SAFETY: shared references give no access to the bytes except as pointers.
unsafe impl Sync for SegmentFile {}

impl SegmentFile {
    /// Creates a file of `bytes` zeros, maps it for writing, and seals it.
    pub fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("crossdock-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let mapping = Self::map(&file, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((mapping, file))
    }

    /// Maps a file of at least `bytes` bytes that the host created, for reading.
    pub fn open(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map(&file, bytes, libc::PROT_READ)
    }

    fn map(file: impl AsFd, bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        let file = file.as_fd().as_raw_fd();
        // SAFETY: the system chooses the address, so the call changes no other mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        // SAFETY: `map` mapped these bytes, and only this line unmaps them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn only_the_creator_can_write_the_file() {
        let (created, file) = SegmentFile::create(10_000).unwrap();
        let opened = SegmentFile::open(&file, 10_000).unwrap();
        // SAFETY: the byte is in the mapping, and no other thread uses it.
        unsafe { created.start().add(9_999).write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { opened.start().add(9_999).read() }, 7);
        assert!(SegmentFile::map(&file, 10_000, libc::PROT_READ | libc::PROT_WRITE).is_err());
        let file = File::from(file);
        assert!(file.write_all_at(&[1], 0).is_err() && file.set_len(1).is_err());
        assert!(file.set_len(20_000).is_err());
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the call takes integers, and the file is open.
        assert_ne!(unsafe { libc::fallocate(file.as_raw_fd(), hole, 0, 4096) }, 0);
    }
}
