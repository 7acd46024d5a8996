//! Maps files for reading, and finds the mapped file that contains an address.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crossdock_memory_backend::{Account, ProcessWide, Reservation};
use crossdock_plugin_api::Result;

use crate::files::truncated::TruncatableMapping;

/// A whole file, mapped for reading.
pub struct Mapping {
    /// The file, for sending it to another process. `None` if too many received files are already
    /// open.
    file: Option<Arc<OpenFile>>,
    id: FileId,
    start: NonNull<u8>,
    bytes: usize,
    /// The budget that the mapping uses. It is returned to the [`ReceiveBudget`] on drop.
    reservation: Option<(MappingReservation, Option<Reservation>)>,
    /// Whether a thread is about to call [`Mapping::trim`].
    pub trimming: AtomicBool,
    /// Registers the mapping with the SIGBUS handler if other processes can truncate the file.
    truncatable: Option<TruncatableMapping>,
}

/// The open file of a mapping.
pub struct OpenFile {
    file: Arc<File>,
    /// Whether the file belongs to a message. Otherwise it is a user's file.
    pub is_message: bool,
    _slot: Option<OpenFileSlot>,
}

impl OpenFile {
    /// Opens the file again for reading. The new open file has its own offset, flags, locks and
    /// leases.
    pub fn open_again(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Reads bytes from `offset` onwards to `to`. Returns the number of bytes read, which is less
    /// than `to.len()` only at the end of the file.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(&*self.file, rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A received file that is kept open. The number of such files is limited. If a received file is
/// not kept open, its buffers are copied when they are sent to another process.
struct OpenFileSlot(());

impl OpenFileSlot {
    fn free_slots() -> &'static AtomicUsize {
        /// The number is far below the usual limit of 1024 open files.
        static FREE: AtomicUsize = AtomicUsize::new(256);
        &FREE
    }

    fn take() -> Option<Self> {
        let subtract = |free: usize| free.checked_sub(1);
        let result = Self::free_slots().fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        result.ok().map(|_| Self(()))
    }
}

impl Drop for OpenFileSlot {
    fn drop(&mut self) {
        Self::free_slots().fetch_add(1, Ordering::Relaxed);
    }
}

/// Limits the files and memory that the host keeps for the messages of one plugin: the number of
/// mapped files and, with an account, the bytes of memory.
#[derive(Clone)]
pub struct ReceiveBudget {
    /// The number of files that may still be mapped. By default, Linux limits a process to 65,530
    /// mappings of any kind.
    remaining_files: Arc<AtomicUsize>,
    account: Option<Arc<Account>>,
}

impl ReceiveBudget {
    const MAX_FILES: usize = 16_384;

    /// Creates a budget of `files` mapped files, without a memory limit.
    pub fn new(files: usize) -> Self {
        Self { remaining_files: Arc::new(AtomicUsize::new(files)), account: None }
    }

    /// Returns a budget that shares its mapped files with this budget, and has the memory limit of
    /// `account`.
    pub fn with_account(&self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self.clone() }
    }

    /// Charges bytes to the account.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn reserve(&self, bytes: usize) -> Result<Option<Reservation>> {
        self.account.as_ref().map(|account| account.reserve(bytes)).transpose()
    }

    fn reserve_file(&self) -> io::Result<MappingReservation> {
        let subtract = |remaining: usize| remaining.checked_sub(1);
        let result = self.remaining_files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        let exceeded = |_| {
            let max = Self::MAX_FILES;
            let message =
                format!("arrays of one isolated plugin lie in {max} mapped files, which is the maximum");
            io::Error::new(io::ErrorKind::QuotaExceeded, message)
        };
        result.map(|_| MappingReservation(self.remaining_files.clone())).map_err(exceeded)
    }
}

impl Default for ReceiveBudget {
    fn default() -> Self {
        Self::new(Self::MAX_FILES)
    }
}

/// The reservation of one mapped file in a [`ReceiveBudget`].
struct MappingReservation(Arc<AtomicUsize>);

impl Drop for MappingReservation {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Copies bytes from `offset` onwards to `to`. Returns the number of copied bytes, which is less
/// than `to.len()` only at the end of `bytes`.
pub fn read_from(bytes: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
    let n = rest.len().min(to.len());
    to[..n].copy_from_slice(&rest[..n]);
    n
}

/// The device and inode of a file. They identify the file while it is open or mapped.
type FileId = (u64, u64);

// SAFETY: the mapping is read-only and stays at its address, so any thread may read and unmap it.
// The other fields are `Send`.
unsafe impl Send for Mapping {}
// SAFETY: the mapping is read-only, `trimming` is atomic, and the other fields are not changed
// after `register`.
unsafe impl Sync for Mapping {}

/// All existing mappings.
#[derive(Default)]
struct Mappings {
    by_file: BTreeMap<FileId, Weak<Mapping>>,
    by_address: BTreeMap<usize, Weak<Mapping>>,
}

static MAPPINGS: ProcessWide<Mappings> = ProcessWide::new();

impl Mapping {
    /// Maps a user's file. Returns `None` if it is empty or cannot be mapped.
    pub fn new(file: Arc<File>) -> io::Result<Option<Arc<Self>>> {
        let Some(mut mapping) = Self::map(&file)? else { return Ok(None) };
        mapping.truncatable = TruncatableMapping::new(mapping.start, mapping.bytes, file.as_raw_fd());
        Ok(Some(mapping.register(Some(OpenFile { file, is_message: false, _slot: None }))))
    }

    /// Maps the file of a message that this process has written. Returns `None` if it is empty or
    /// cannot be mapped.
    pub fn from_message(file: File) -> io::Result<Option<Arc<Self>>> {
        let (mapping, file) = (Self::map(&file)?, Arc::new(file));
        Ok(mapping.map(|mapping| mapping.register(Some(OpenFile { file, is_message: true, _slot: None }))))
    }

    /// Maps the file of a message from another process. `budget` is set if that process is not
    /// trusted. Returns `None` if the file is empty or cannot be mapped.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub fn from_received(file: File, budget: Option<&ReceiveBudget>) -> Result<Option<Arc<Self>>> {
        let reserve = |budget: &ReceiveBudget| -> Result<_> {
            let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            Ok((budget.reserve_file()?, budget.reserve(bytes)?))
        };
        let reservation = budget.map(reserve).transpose()?;
        let mapping = Self::map(&file)?.map(|mut mapping| {
            mapping.reservation = reservation;
            mapping
        });
        let open_file =
            || Some(OpenFile { _slot: Some(OpenFileSlot::take()?), is_message: true, file: Arc::new(file) });
        Ok(mapping.map(|mapping| mapping.register(open_file())))
    }

    fn map(file: &File) -> io::Result<Option<Self>> {
        let stat = file.metadata()?;
        let Some(bytes) = usize::try_from(stat.len()).ok().filter(|n| (1..=isize::MAX as usize).contains(n))
        else {
            return Ok(None);
        };
        // SAFETY: the system chooses the address, so the call changes no other mapping.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Ok(None);
        }
        let Some(start) = NonNull::new(start.cast()) else { return Ok(None) };
        let id = (stat.dev(), stat.ino());
        let trimming = AtomicBool::new(false);
        Ok(Some(Self { file: None, id, start, bytes, reservation: None, trimming, truncatable: None }))
    }

    fn register(mut self, file: Option<OpenFile>) -> Arc<Self> {
        self.file = file.map(Arc::new);
        let mapping = Arc::new(self);
        let mut mappings = MAPPINGS.lock();
        mappings.by_file.insert(mapping.id, Arc::downgrade(&mapping));
        mappings.by_address.insert(mapping.start.as_ptr().addr(), Arc::downgrade(&mapping));
        mapping
    }

    /// Returns the existing mapping of `file`.
    pub fn existing(file: &File) -> io::Result<Option<Arc<Self>>> {
        let stat = file.metadata()?;
        Ok(MAPPINGS.lock().by_file.get(&(stat.dev(), stat.ino())).and_then(Weak::upgrade))
    }

    /// Returns the open file that contains `bytes`, the offset of `bytes` in it, and the length of
    /// the file in bytes.
    pub fn file_containing(bytes: &[u8]) -> Option<(Arc<OpenFile>, u64, u64)> {
        let mapping = MAPPINGS.lock().by_address.range(..=bytes.as_ptr().addr()).next_back()?.1.upgrade()?;
        let offset = bytes.as_ptr().addr() - mapping.start.as_ptr().addr();
        let is_within = offset.checked_add(bytes.len())? <= mapping.bytes;
        mapping.file.clone().filter(|_| is_within).map(|file| (file, offset as u64, mapping.bytes as u64))
    }

    /// The contents of the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the `bytes` bytes at `start` are mapped for reading until `self` is dropped.
        // Files of messages are sealed. The documentation of mapped sources requires that other
        // programs do not write to a user's file. Module `truncated` handles truncated files.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Removes the pages from this process. The system reads them again from the file when they are
    /// needed.
    pub fn trim(&self) {
        // SAFETY: MADV_DONTNEED on a shared, read-only mapping of a file does not change the
        // contents. An error has no effect on the mapping.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTNEED) };
        self.trimming.store(false, Ordering::Relaxed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        {
            let mut mappings = MAPPINGS.lock();
            // The file may have been mapped again in the meantime.
            if mappings.by_file.get(&self.id).is_some_and(|known| known.strong_count() == 0) {
                mappings.by_file.remove(&self.id);
            }
            mappings.by_address.remove(&self.start.as_ptr().addr());
        }
        // The mapping is unregistered before the system can reuse its addresses.
        drop(self.truncatable.take());
        // SAFETY: `map` mapped these bytes, and only this line unmaps them. Every reader holds an
        // `Arc` of `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
