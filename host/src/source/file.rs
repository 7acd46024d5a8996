//! Regular files: mapped where that works, read at an offset where not.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossdock_plugin_api::{ByteSource, Error as ApiError, Result as ApiResult};

use crate::error::{Error, Result};

/// A regular file of the length that it had when it was opened.
///
/// Its content is mapped, so that host memory need not be copied. Whoever cuts a mapped file short takes the ground from
/// under its readers: the system then sends SIGBUS to the process that looks at the missing part. The host asks for the
/// length before every batch and at the end ([`FileSource::check_length`]) and stops with an error, which closes all but a
/// short moment; the library installs no signal handler, which is the application's to decide on (the command has one).
/// Who cannot trust the writers of a file opens it with [`FileSource::unmapped`].
pub struct FileSource {
    file: File,
    name: String,
    bytes: u64,
    /// Made when somebody asks for it; `None` in it where there is none to be had.
    mapping: OnceLock<Option<Arc<Mapping>>>,
}

/// From this size on, pages leave the process on a thread of their own: for a few gigabytes that takes a good part of the
/// time in which they go to a device.
const WORTH_A_THREAD: usize = 64 << 20;

impl FileSource {
    /// Takes an open file, which is mapped for whoever wants to look at its bytes in place.
    pub fn new(file: File, name: String) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| Error::io(format!("cannot open '{name}'"), error))?;
        Ok(Self { bytes: metadata.len(), file, name, mapping: OnceLock::new() })
    }

    /// Takes an open file, to be read with `pread` only.
    pub fn unmapped(file: File, name: String) -> Result<Self> {
        let source = Self::new(file, name)?;
        source.leave_unmapped();
        Ok(source)
    }

    /// From now on it is read with `pread` only, unless it is mapped already.
    pub(crate) fn leave_unmapped(&self) {
        self.mapping.get_or_init(|| None);
    }

    /// Whether its pages come one by one, each with a fault, so that reading it takes less time than mapping it where all of
    /// it is wanted once. Other file systems keep what they have cached in larger pieces, and map many pages at a time.
    pub(crate) fn has_single_pages(&self) -> bool {
        let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: an open file, and a place for the answer, of which zeros are a value too.
        let found = unsafe {
            libc::fstatfs(self.file.as_raw_fd(), found.as_mut_ptr());
            found.assume_init()
        };
        found.f_type == libc::TMPFS_MAGIC
    }

    /// Whether the file still has the length that it had when it was opened.
    pub fn check_length(&self) -> Result<()> {
        let now = self
            .file
            .metadata()
            .map_err(|error| Error::io(format!("cannot look at '{}'", self.name), error))?;
        if now.len() >= self.bytes {
            return Ok(());
        }
        Err(Error::data(
            format!("cannot read '{}'", self.name),
            ApiError::io(format!(
                "somebody cut it short while it was being read: expected {} bytes, got {}",
                self.bytes,
                now.len()
            )),
        ))
    }

    /// Takes the pages that were looked at out of this process again, some time soon. They stay in the system's cache, and
    /// come back when they are looked at.
    pub(crate) fn trim(&self) {
        let Some(Some(mapping)) = self.mapping.get() else { return };
        if mapping.trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let theirs = mapping.clone();
        if !aside(mapping.bytes, move || theirs.trim()) {
            mapping.trim();
        }
    }
}

impl Drop for FileSource {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take().flatten() {
            // It goes with its last share, here or there.
            aside(mapping.bytes, move || drop(mapping));
        }
    }
}

/// Has `work` on a mapping of `bytes` bytes done by another thread, if that is worth it and there is one to be had.
fn aside(bytes: usize, work: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name("crossdock-unmap".into());
    bytes >= WORTH_A_THREAD && thread.spawn(work).is_ok()
}

impl ByteSource for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> ApiResult<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ApiError::io(format!("'{}': {error}", self.name))),
            }
        }
        Ok(done)
    }

    fn map(&self) -> Option<&[u8]> {
        // A file that cannot be mapped can still be read.
        let map = || usize::try_from(self.bytes).ok().and_then(|bytes| Mapping::new(&self.file, bytes));
        self.mapping.get_or_init(|| map().map(Arc::new)).as_deref().map(Mapping::bytes)
    }
}

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    trimming: AtomicBool,
}

// SAFETY: a read-only mapping that nobody moves; it may be read and unmapped from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, bytes: usize) -> Option<Self> {
        if bytes == 0 || bytes > isize::MAX as usize {
            return None;
        }
        // SAFETY: a new mapping, wherever the system likes, that only this struct refers to.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(start.cast()).map(|start| Self { start, bytes, trimming: AtomicBool::new(false) })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` bytes are mapped readable until `self` is dropped. That nobody cuts the file short meanwhile
        // is the documented duty of those who write to it; what they overwrite shows through as other bytes, which
        // validation found sound only as of its own look.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn trim(&self) {
        // SAFETY: a read-only mapping of a file: dropping its pages changes no content, they are read again when
        // needed. The answer does not matter.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTNEED) };
        self.trimming.store(false, Ordering::Relaxed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; whoever read it held a share of the source.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// KiB of the file that are in this process; `None` where it is not mapped.
    fn resident(name: &str) -> Option<u64> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.ends_with(name));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
        rss.trim().strip_suffix(" kB")?.parse().ok()
    }

    fn soon(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_mapping_gives_its_pages_back_and_goes_whatever_its_size() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [100_000, WORTH_A_THREAD + 5] {
            let name = format!("of-{bytes}-bytes");
            let path = folder.path().join(&name);
            std::fs::write(&path, vec![1; bytes]).unwrap();
            let source = FileSource::new(File::open(&path).unwrap(), name.clone()).unwrap();
            for _ in 0..2 {
                assert_eq!(source.map().unwrap().iter().map(|b| usize::from(*b)).sum::<usize>(), bytes);
                assert!(resident(&name).unwrap() as usize >= bytes / 1024);
                source.trim();
                soon("it is still here", || resident(&name).unwrap() == 0);
                let trimming = &source.mapping.get().unwrap().as_ref().unwrap().trimming;
                soon("nobody can trim it any more", || !trimming.load(Ordering::Relaxed));
            }
            drop(source);
            soon("it is still mapped", || resident(&name).is_none());
        }
    }
}
