//! Host memory that other processes open as files.
//!
//! A block is a file in memory (`memfd_create`). Each time it is exported, the file is opened again
//! for reading, with a lock. The system removes the lock when no process has this open file, or a
//! mapping of it. Receivers therefore need not report the end of their use, and no connection is
//! kept for it: the owner reuses a freed block when it has no locks.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

use super::{AllocError, Budget, MAX_PAGE_BYTES, Region, Request, Resource, Uses};
use crate::device::Stream;

/// No process can change the length of a file, or write it except through the owner's mapping.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);
/// The size of a file is a multiple of this fraction of the next smaller power of two, so that
/// blocks of similar sizes can be reused.
const STEPS_PER_DOUBLING: usize = 8;
/// The maximum number of freed blocks that are kept, because each has an open file.
const MAX_KEPT: usize = 64;

/// The blocks of a backend.
pub(crate) struct SharedFiles {
    max_kept_bytes: usize,
    budget: Option<Arc<Budget>>,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// The allocated blocks, by their addresses.
    live: HashMap<usize, SharedFile>,
    /// Freed blocks, the oldest first. Other processes may still use them. They count against the
    /// budget.
    kept: VecDeque<SharedFile>,
}

struct SharedFile {
    file: File,
    mapping: Mapping,
}

/// Host memory of another process, mapped for reading.
pub struct SharedHostMemory(Mapping);

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: shared references give no access to the bytes except as an address.
unsafe impl Sync for Mapping {}

impl SharedFiles {
    pub(crate) fn new(max_kept_bytes: usize, budget: Option<Arc<Budget>>) -> Self {
        Self { max_kept_bytes, budget, lists: Mutex::default() }
    }

    /// Returns an open file for other processes, and its length in bytes, if `address` is the
    /// address of a block.
    pub(crate) fn export(&self, address: u64) -> Result<Option<(OwnedFd, u64)>> {
        let lists = self.lock();
        let block = usize::try_from(address).ok().and_then(|address| lists.live.get(&address));
        let Some(SharedFile { file, mapping }) = block else { return Ok(None) };
        let opened = open_with_lock(file);
        let opened = opened.map_err(|error| {
            Error::internal(format!("cannot open a file in memory again for another process: {error}"))
        });
        Ok(Some((opened?.into(), mapping.bytes as u64)))
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a kept block that nothing uses.
    fn take(&self, bytes: usize) -> Option<SharedFile> {
        let mut lists = self.lock();
        let fits = |block: &SharedFile| block.mapping.bytes == bytes && !block.is_in_use();
        let i = lists.kept.iter().rposition(fits)?;
        let block = lists.kept.remove(i)?;
        self.uncount(bytes);
        Some(block)
    }

    /// Keeps a freed block, and drops the oldest ones if they are too many.
    fn keep(&self, block: SharedFile) {
        let bytes = block.mapping.bytes;
        let mut dropped = Vec::new();
        let mut lists = self.lock();
        let is_counted = bytes <= self.max_kept_bytes
            && self.budget.as_ref().is_none_or(|budget| budget.charge(bytes).is_ok());
        if !is_counted {
            dropped.push(block);
        } else {
            lists.kept.push_back(block);
            let mut total = lists.kept_bytes();
            while total > self.max_kept_bytes || lists.kept.len() > MAX_KEPT {
                let Some(oldest) = lists.kept.pop_front() else { break };
                total -= oldest.mapping.bytes;
                self.uncount(oldest.mapping.bytes);
                dropped.push(oldest);
            }
        }
        // Unmapping takes long, so it runs without the lock.
        drop(lists);
    }

    fn uncount(&self, bytes: usize) {
        if let Some(budget) = &self.budget {
            budget.release(bytes);
        }
    }
}

impl Lists {
    fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|block| block.mapping.bytes).sum()
    }
}

impl Resource for SharedFiles {
    fn allocate(&self, request: Request, _stream: &Stream) -> Result<Region, AllocError> {
        let bytes = file_bytes(request.bytes).ok_or(AllocError::TooLarge)?;
        let block = match self.take(bytes) {
            Some(block) => block,
            None => SharedFile::create(bytes).map_err(failed)?,
        };
        let address = block.mapping.start;
        self.lock().live.insert(address.as_ptr() as usize, block);
        Ok(Region { address, reachable: address, request, home: std::ptr::null_mut() })
    }

    fn release(&self, region: Region, _uses: Uses<'_>, _exported: bool) {
        let block = self.lock().live.remove(&(region.reachable.as_ptr() as usize));
        if let Some(block) = block {
            self.keep(block);
        }
    }

    fn trim(&self, bytes: usize) -> usize {
        if bytes == 0 {
            return 0;
        }
        let kept = std::mem::take(&mut self.lock().kept);
        let bytes = kept.iter().map(|block| block.mapping.bytes).sum();
        self.uncount(bytes);
        bytes
    }

    fn cached_bytes(&self) -> usize {
        self.lock().kept_bytes()
    }
}

/// The size of the file for a block. `None` if it overflows.
fn file_bytes(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(1);
    let step = (1 << bytes.ilog2()) / STEPS_PER_DOUBLING;
    bytes.checked_next_multiple_of(step.max(MAX_PAGE_BYTES)).filter(|bytes| isize::try_from(*bytes).is_ok())
}

fn failed(error: std::io::Error) -> AllocError {
    AllocError::System { errno: error.raw_os_error().unwrap_or(libc::ENOMEM) }
}

impl SharedFile {
    fn create(bytes: usize) -> std::io::Result<Self> {
        let file = memfd_create("crossdock-shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let file = File::from(file);
        let mapping = Mapping::new(&file, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        fcntl_add_seals(&file, SEALS)?;
        // One call takes half the time of the page faults, and returns an error if memory is
        // exhausted, where a page fault would end the process.
        // SAFETY: the mapping has these bytes, and the call does not change them.
        let code =
            unsafe { libc::madvise(mapping.start.as_ptr().cast(), mapping.bytes, libc::MADV_POPULATE_WRITE) };
        let error = std::io::Error::last_os_error();
        // Linux before 5.14 does not know this advice.
        if code != 0 && error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        Ok(Self { file, mapping })
    }

    /// Whether a process has an exported file open or mapped. If the system does not say so, the
    /// block is not reused.
    fn is_in_use(&self) -> bool {
        let mut lock = whole_file(libc::F_WRLCK);
        // SAFETY: the file is open, and the pointer points to a local variable.
        let code = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        code != 0 || i32::from(lock.l_type) != libc::F_UNLCK
    }
}

/// Opens a file again for reading, with a lock that lasts as long as this open file.
fn open_with_lock(file: &File) -> std::io::Result<File> {
    let opened = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let lock = whole_file(libc::F_RDLCK);
    // SAFETY: the file is open, and the pointer points to a local variable.
    match unsafe { libc::fcntl(opened.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(opened),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn whole_file(kind: i32) -> libc::flock {
    // SAFETY: all fields are numbers. A length of 0 stands for all bytes, and the process number
    // must be 0.
    let lock: libc::flock = unsafe { std::mem::zeroed() };
    libc::flock { l_type: kind as libc::c_short, l_whence: libc::SEEK_SET as libc::c_short, ..lock }
}

impl SharedHostMemory {
    /// Maps the first `bytes` bytes of a file that another process exported.
    pub(crate) fn open(file: &OwnedFd, bytes: u64) -> Result<Self> {
        let failed = |what: String| Error::bad_data(format!("the memory of another process {what}"));
        let seals = fcntl_get_seals(file);
        // Otherwise, the other process could end this one by a shorter file.
        if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(failed("is no file in memory whose length is fixed".into()));
        }
        let length = fstat(file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if bytes == 0 || bytes > length {
            return Err(failed(format!("has {length} bytes, expected {bytes}")));
        }
        let size = usize::try_from(bytes).map_err(|_| failed(format!("has {bytes} bytes")))?;
        Mapping::new(file, size, libc::PROT_READ)
            .map(Self)
            .map_err(|error| Error::device(format!("cannot map the memory of another process: {error}")))
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.start.as_ptr() as u64
    }
}

impl Mapping {
    fn new(file: &impl AsRawFd, bytes: usize, protection: i32) -> std::io::Result<Self> {
        let file = file.as_raw_fd();
        // SAFETY: the system chooses the address, so the call changes no other mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these bytes, and only this line unmaps them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn files(max_kept_bytes: usize) -> Arc<SharedFiles> {
        Arc::new(SharedFiles::new(max_kept_bytes, None))
    }

    fn allocate(files: &Arc<SharedFiles>, bytes: usize) -> Region {
        let stream = Stream::new(0, 0, std::ptr::null_mut());
        files.allocate(Request { bytes, alignment: 64 }, &stream).unwrap()
    }

    fn address(region: &Region) -> u64 {
        region.address.as_ptr() as u64
    }

    #[test]
    fn receiver_reads_a_block_until_it_unmaps_it() {
        let files = files(1 << 20);
        let block = allocate(&files, 100_000);
        let (file, bytes) = files.export(address(&block)).unwrap().unwrap();
        // SAFETY: the byte is in the block, which nothing else uses.
        unsafe { block.address.add(99_999).write(7) };
        let memory = SharedHostMemory::open(&file, bytes).unwrap();
        assert!(bytes >= 100_000);
        drop(file);
        let first = address(&block);
        files.release(block, &[], false);
        // The mapping alone keeps the block from being reused.
        let other = allocate(&files, 100_000);
        assert_ne!(address(&other), first);
        // SAFETY: the mapping has more than this number of bytes.
        assert_eq!(unsafe { (memory.address() as usize as *const u8).add(99_999).read() }, 7);
        drop(memory);
        assert_eq!(address(&allocate(&files, 100_001)), first);
    }

    #[test]
    fn keeps_the_newest_blocks_up_to_the_maximum_and_charges_the_budget() {
        let budget = Arc::new(Budget::new(200 << 10));
        let files = Arc::new(SharedFiles::new(150 << 10, Some(budget.clone())));
        let blocks = [0; 4].map(|_| allocate(&files, 64 << 10));
        let last = address(&blocks[3]);
        blocks.into_iter().for_each(|block| files.release(block, &[], false));
        assert_eq!(files.cached_bytes(), 128 << 10);
        assert!(budget.charge((200 - 128) << 10).is_ok() && budget.charge(1).is_err());
        assert_eq!(address(&allocate(&files, 1)), last);
        assert_eq!((files.trim(1), files.cached_bytes()), (64 << 10, 0));
        assert!(budget.charge(128 << 10).is_ok());
        // Nothing is kept if the budget is used up.
        files.release(allocate(&files, 1), &[], false);
        assert_eq!(files.cached_bytes(), 0);
        files.release(allocate(&files, 200 << 10), &[], false);
        assert_eq!(files.cached_bytes(), 0);
    }

    #[test]
    fn sizes_waste_at_most_an_eighth() {
        assert_eq!([0, 1, 65_536, 65_537].map(file_bytes), [65_536, 65_536, 65_536, 131_072].map(Some));
        assert_eq!(file_bytes(usize::MAX), None);
        for bytes in (0..40).flat_map(|i| [1 << i, (1 << i) + 1, 3 << i]).filter(|bytes| *bytes > 1 << 20) {
            let rounded = file_bytes(bytes).unwrap();
            assert!(rounded >= bytes && rounded - bytes <= bytes / 8, "{bytes}: {rounded}");
        }
    }

    #[test]
    fn receivers_cannot_write_and_reject_other_files() {
        let files = files(0);
        let block = allocate(&files, 1);
        let (file, bytes) = files.export(address(&block)).unwrap().unwrap();
        assert!(Mapping::new(&file, 4096, libc::PROT_READ | libc::PROT_WRITE).is_err());
        for wrong in [0, bytes + 1, u64::MAX] {
            let error = SharedHostMemory::open(&file, wrong).err().unwrap();
            assert!(error.message().contains(&format!("expected {wrong}")), "{error}");
        }
        let growing = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&growing, 4096).unwrap();
        let others: [OwnedFd; 2] = [growing, File::open("/proc/self/exe").unwrap().into()];
        for other in others {
            let error = SharedHostMemory::open(&other, 4096).err().unwrap();
            assert!(error.message().contains("whose length is fixed"), "{error}");
        }
        assert!(files.export(8).unwrap().is_none());
        files.release(block, &[], false);
        assert_eq!(files.cached_bytes(), 0);
    }
}
