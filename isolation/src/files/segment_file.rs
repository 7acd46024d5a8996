//! Files in memory for shared segments.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Seals that prevent changes of the length.
const LENGTH_SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// What processes can do with a file that another process created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// A mapped file in memory.
pub struct SegmentFile {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping stays at its address, and any thread may unmap it.
unsafe impl Send for SegmentFile {}
// SAFETY: shared references give no access to the bytes except as pointers.
unsafe impl Sync for SegmentFile {}

impl SegmentFile {
    /// Creates a file of `bytes` zeros, maps it for writing, and seals its length. `access` is the
    /// access of other processes.
    pub fn create(bytes: usize, access: Access) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("crossdock-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let mapping = Self::open(&file, bytes, Access::ReadWrite)?;
        // This seal prevents changes except through mappings that exist.
        let seals = match access {
            Access::Read => LENGTH_SEALS.union(SealFlags::FUTURE_WRITE),
            Access::ReadWrite => LENGTH_SEALS,
        };
        fcntl_add_seals(&file, seals)?;
        Ok((mapping, file))
    }

    /// Maps a file of at least `bytes` bytes that the host created.
    pub fn open(file: impl AsFd, bytes: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
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
    fn only_the_creator_can_write_a_file_that_others_read() {
        let (created, file) = SegmentFile::create(10_000, Access::Read).unwrap();
        let opened = SegmentFile::open(&file, 10_000, Access::Read).unwrap();
        // SAFETY: the byte is in the mapping, and no other thread uses it.
        unsafe { created.start().add(9_999).write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { opened.start().add(9_999).read() }, 7);
        assert!(SegmentFile::open(&file, 10_000, Access::ReadWrite).is_err());
        let file = File::from(file);
        assert!(file.write_all_at(&[1], 0).is_err() && file.set_len(1).is_err());
        assert!(file.set_len(20_000).is_err());
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the call takes integers, and the file is open.
        assert_ne!(unsafe { libc::fallocate(file.as_raw_fd(), hole, 0, 4096) }, 0);
    }

    #[test]
    fn others_can_write_a_writable_file_and_not_change_its_length() {
        let (created, file) = SegmentFile::create(10_000, Access::ReadWrite).unwrap();
        let opened = SegmentFile::open(&file, 10_000, Access::ReadWrite).unwrap();
        // SAFETY: the byte is in the mapping, and no other thread uses it.
        unsafe { opened.start().add(9_999).write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { created.start().add(9_999).read() }, 7);
        let file = File::from(file);
        assert!(file.set_len(1).is_err() && file.set_len(20_000).is_err());
    }
}
