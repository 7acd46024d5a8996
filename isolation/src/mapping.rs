//! Files mapped for reading, and which of them an address lies in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crossdock_memory_backend::{Account, ProcessWide, Reserved};
use crossdock_plugin_api::Result;

use crate::truncated::Listed;

/// A whole file, mapped for reading.
pub struct Mapping {
    /// To send it on; not kept open of too many.
    file: Option<Arc<OpenFile>>,
    id: Id,
    start: NonNull<u8>,
    bytes: usize,
    /// Given back once it is no more.
    counted: Option<(Counted, Option<Reserved>)>,
    /// Whether somebody is about to take its pages out of the process.
    pub trimming: AtomicBool,
    /// A file that others can truncate, for the handler of SIGBUS.
    truncatable: Option<Listed>,
}

/// A file that is mapped.
pub struct OpenFile {
    file: Arc<File>,
    /// Whether it holds what was sent once, and not what a user keeps in it.
    pub of_a_message: bool,
    _kept: Option<Kept>,
}

impl OpenFile {
    /// The same file once more for reading, with offset, flags, locks and leases of its own.
    pub fn open_again(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// One of the files that came from other processes, and are open.
struct Kept(());

impl Kept {
    fn left() -> &'static AtomicUsize {
        /// Far fewer than a process may have open. What lies in the others is sent on as a copy.
        static LEFT: AtomicUsize = AtomicUsize::new(256);
        &LEFT
    }

    fn one_more() -> Option<Self> {
        let taken = |left: usize| left.checked_sub(1);
        Self::left().fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok().map(|_| Self(()))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        Self::left().fetch_add(1, Ordering::Relaxed);
    }
}

/// What a host may hold of what one plugin sent.
#[derive(Clone)]
pub struct Allowance {
    /// How many more files may be mapped at once. A process has room for 65,530 mappings, of whatever kind, where the system is not
    /// told otherwise.
    files: Arc<AtomicUsize>,
    /// Whose memory all of it is.
    account: Option<Arc<Account>>,
}

impl Allowance {
    const MOST: usize = 16_384;

    /// So many.
    pub fn of(files: usize) -> Self {
        Self { files: Arc::new(AtomicUsize::new(files)), account: None }
    }

    /// The same, within the limit that the account has.
    pub fn counted_by(&self, account: Arc<Account>) -> Self {
        Self { account: Some(account), ..self.clone() }
    }

    /// Counts bytes of the host's memory.
    ///
    /// # Errors
    /// Out of memory.
    pub fn reserve(&self, bytes: usize) -> Result<Option<Reserved>> {
        self.account.as_ref().map(|account| account.reserve(bytes)).transpose()
    }

    fn one_more(&self) -> io::Result<Counted> {
        let taken = |left: usize| left.checked_sub(1);
        let taken = self.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let most = || {
            let most = Self::MOST;
            io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!(
                    "a plugin in a process of its own has arrays alive in {most} files, which is as many as may be mapped of one's"
                ),
            )
        };
        taken.map(|_| Counted(self.files.clone())).map_err(|_| most())
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of(Self::MOST)
    }
}

/// One of them.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a source of these bytes reads at `offset`: how many bytes of `to` were filled, fewer only at the end.
pub fn read_from(bytes: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
    let n = rest.len().min(to.len());
    to[..n].copy_from_slice(&rest[..n]);
    n
}

/// By which a file is known while it is open, or mapped: device and inode.
type Id = (u64, u64);

// SAFETY: a read-only mapping that nobody moves; it may be read and unmapped from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// All that are alive.
#[derive(Default)]
struct Mappings {
    by_file: BTreeMap<Id, Weak<Mapping>>,
    by_address: BTreeMap<usize, Weak<Mapping>>,
}

static MAPPINGS: ProcessWide<Mappings> = ProcessWide::new();

impl Mapping {
    /// Maps a file; `None` where it has no bytes, or cannot be mapped.
    pub fn of(file: Arc<File>) -> io::Result<Option<Arc<Self>>> {
        let Some(mut mapping) = Self::map(&file)? else { return Ok(None) };
        mapping.truncatable = Listed::new(mapping.start, mapping.bytes, file.as_raw_fd());
        Ok(Some(mapping.listed(Some(OpenFile { file, of_a_message: false, _kept: None }))))
    }

    /// The same for one that this process made, to send it.
    pub fn of_a_message(file: File) -> io::Result<Option<Arc<Self>>> {
        let (mapping, file) = (Self::map(&file)?, Arc::new(file));
        Ok(mapping.map(|mapping| mapping.listed(Some(OpenFile { file, of_a_message: true, _kept: None }))))
    }

    /// The same for one that came from another process, of which there may be many: from one that is not trusted, as many and as
    /// much as it is allowed.
    pub fn of_one_that_came(file: File, allowed: Option<&Allowance>) -> Result<Option<Arc<Self>>> {
        let count = |allowed: &Allowance| -> Result<_> {
            let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            Ok((allowed.one_more()?, allowed.reserve(bytes)?))
        };
        let counted = allowed.map(count).transpose()?;
        let mapping = Self::map(&file)?.map(|mut mapping| {
            mapping.counted = counted;
            mapping
        });
        let open =
            || Some(OpenFile { _kept: Some(Kept::one_more()?), of_a_message: true, file: Arc::new(file) });
        Ok(mapping.map(|mapping| mapping.listed(open())))
    }

    fn map(file: &File) -> io::Result<Option<Self>> {
        let stat = file.metadata()?;
        let Some(bytes) = usize::try_from(stat.len()).ok().filter(|n| (1..=isize::MAX as usize).contains(n))
        else {
            return Ok(None);
        };
        // SAFETY: a new mapping, wherever the system likes, that only this struct refers to.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Ok(None);
        }
        let Some(start) = NonNull::new(start.cast()) else { return Ok(None) };
        let id = (stat.dev(), stat.ino());
        let trimming = AtomicBool::new(false);
        Ok(Some(Self { file: None, id, start, bytes, counted: None, trimming, truncatable: None }))
    }

    fn listed(mut self, file: Option<OpenFile>) -> Arc<Self> {
        self.file = file.map(Arc::new);
        let mapping = Arc::new(self);
        let mut all = MAPPINGS.lock();
        all.by_file.insert(mapping.id, Arc::downgrade(&mapping));
        all.by_address.insert(mapping.start.as_ptr().addr(), Arc::downgrade(&mapping));
        mapping
    }

    /// The mapping that there is of this file, if there is one.
    pub fn known(file: &File) -> io::Result<Option<Arc<Self>>> {
        let stat = file.metadata()?;
        Ok(MAPPINGS.lock().by_file.get(&(stat.dev(), stat.ino())).and_then(Weak::upgrade))
    }

    /// The open file that these bytes lie in, from which of its bytes on, and how many it has.
    pub fn file_around(bytes: &[u8]) -> Option<(Arc<OpenFile>, u64, u64)> {
        let mapping = MAPPINGS.lock().by_address.range(..=bytes.as_ptr().addr()).next_back()?.1.upgrade()?;
        let offset = bytes.as_ptr().addr() - mapping.start.as_ptr().addr();
        let is_in = offset.checked_add(bytes.len())? <= mapping.bytes;
        mapping.file.clone().filter(|_| is_in).map(|file| (file, offset as u64, mapping.bytes as u64))
    }

    /// All of the file.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are mapped readable until `self` is dropped. That nobody cuts the file short meanwhile
        // is the documented duty of those who write to it; what they overwrite shows through as other bytes, which
        // validation found sound only as of its own look.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Takes its pages out of this process.
    pub fn trim(&self) {
        // SAFETY: a read-only mapping of a file: dropping its pages changes no content, they are read again when
        // needed. The answer does not matter.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTNEED) };
        self.trimming.store(false, Ordering::Relaxed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        {
            let mut all = MAPPINGS.lock();
            // Another one of the same file may have come.
            if all.by_file.get(&self.id).is_some_and(|known| known.strong_count() == 0) {
                all.by_file.remove(&self.id);
            }
            all.by_address.remove(&self.start.as_ptr().addr());
        }
        // Before the system may give the addresses to others.
        drop(self.truncatable.take());
        // SAFETY: mapped in `of`, unmapped once; whoever read it held a share.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
