//! Reads regular files, through a mapping if possible.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crossdock_isolation::Mapping;
use crossdock_memory_backend::run_on_kept_thread;
use crossdock_plugin_api::{ByteSource, Error as ApiError, Result as ApiResult};

use crate::error::{Error, Result};

/// A regular file with the length that it had when it was opened.
///
/// The file is mapped, so that its bytes are not copied in host memory. If another process
/// truncates a mapped file, reading the missing part raises SIGBUS. Therefore, the host checks the
/// length before every batch and at the end ([`FileSource::check_length`]) and returns an error, so
/// that SIGBUS can only occur shortly after a check. Signal handlers are the application's
/// decision, so the library installs a handler only on request
/// ([`crate::truncated::handle_sigbus`]). The Python package makes this request, and the command
/// has its own handler. If the writers of a file are not trusted, open it with
/// [`FileSource::unmapped`].
pub struct FileSource {
    file: Arc<File>,
    name: String,
    bytes: u64,
    /// The mapping, which is created at the first use. `Some(None)`: the file cannot or must not be
    /// mapped.
    mapping: OnceLock<Option<Arc<Mapping>>>,
}

/// Mappings with at least this number of bytes are removed on another thread, because removing a
/// mapping of several gigabytes takes long compared to copying its bytes to a device.
const MIN_THREAD_BYTES: usize = 64 << 20;

impl FileSource {
    /// Creates a source of an open file. The file is mapped when an importer uses its bytes in
    /// place.
    pub fn new(file: File, name: String) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| Error::io(format!("cannot open '{name}'"), error))?;
        Ok(Self { bytes: metadata.len(), file: Arc::new(file), name, mapping: OnceLock::new() })
    }

    /// Creates a source of an open file that is never mapped. The file is only read with `pread`.
    pub fn unmapped(file: File, name: String) -> Result<Self> {
        let source = Self::new(file, name)?;
        source.leave_unmapped();
        Ok(source)
    }

    /// Prevents the file from being mapped, unless it is already mapped.
    pub(crate) fn leave_unmapped(&self) {
        self.mapping.get_or_init(|| None);
    }

    /// The file's bytes, if it is mapped.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        self.mapping.get()?.as_deref().map(Mapping::bytes)
    }

    /// Whether each page of the file causes its own page fault, as on tmpfs. Reading such a file
    /// once is faster than mapping it. Other file systems map many cached pages at a time.
    pub(crate) fn has_single_pages(&self) -> bool {
        let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the descriptor is open and `stat` is writable; all zeros is a valid `statfs` if
        // the call fails.
        let stat = unsafe {
            libc::fstatfs(self.file.as_raw_fd(), stat.as_mut_ptr());
            stat.assume_init()
        };
        stat.f_type == libc::TMPFS_MAGIC
    }

    /// Checks that the file has not been truncated since it was opened.
    ///
    /// # Errors
    /// [`Error::Data`] if the file is shorter than when it was opened, [`Error::Io`] if its length
    /// cannot be read.
    pub fn check_length(&self) -> Result<()> {
        let now = self.metadata()?;
        if now.len() >= self.bytes {
            return Ok(());
        }
        Err(Error::data(
            format!("cannot read '{}'", self.name),
            ApiError::io(format!(
                "the file was cut short while it was being read: expected {} bytes, got {}",
                self.bytes,
                now.len()
            )),
        ))
    }

    pub(super) fn metadata(&self) -> Result<std::fs::Metadata> {
        let failed = |error| Error::io(format!("cannot read the length of '{}'", self.name), error);
        self.file.metadata().map_err(failed)
    }

    /// Removes pages from the memory of this process after they were read. Large mappings are
    /// trimmed on another thread. The pages stay in the system's page cache.
    pub(crate) fn trim(&self) {
        let Some(Some(mapping)) = self.mapping.get() else { return };
        if mapping.trimming.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = mapping.clone();
        if !run_on_thread(mapping.bytes().len(), move || shared.trim()) {
            mapping.trim();
        }
    }
}

impl Drop for FileSource {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take().flatten() {
            // The file is unmapped when the last Arc is dropped, by this thread or by the other
            // thread.
            run_on_thread(mapping.bytes().len(), move || drop(mapping));
        }
    }
}

/// Runs `work`, which removes a mapping of `bytes` bytes, on another thread if the mapping is large
/// and a thread can be started. Returns whether another thread runs it.
fn run_on_thread(bytes: usize, work: impl FnOnce() + Send + 'static) -> bool {
    bytes >= MIN_THREAD_BYTES && run_on_kept_thread(Box::new(work)).is_ok()
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
        let map = || Mapping::new(self.file.clone()).ok().flatten();
        let bytes = self.mapping.get_or_init(map).as_deref().map(Mapping::bytes)?;
        // If the file has grown, only the bytes up to its length at opening are used.
        bytes.get(..usize::try_from(self.bytes).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// The number of KiB of the file that are resident in this process; `None` if the file is not
    /// mapped.
    fn resident(name: &str) -> Option<u64> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.ends_with(name));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
        rss.trim().strip_suffix(" kB")?.parse().ok()
    }

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn trim_releases_pages_and_drop_unmaps_files_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [100_000, MIN_THREAD_BYTES + 5] {
            let name = format!("of-{bytes}-bytes");
            let path = folder.path().join(&name);
            std::fs::write(&path, vec![1; bytes]).unwrap();
            let source = FileSource::new(File::open(&path).unwrap(), name.clone()).unwrap();
            for _ in 0..2 {
                assert_eq!(source.map().unwrap().iter().map(|b| usize::from(*b)).sum::<usize>(), bytes);
                assert!(resident(&name).unwrap() as usize >= bytes / 1024);
                source.trim();
                wait_until("pages stay resident", || resident(&name).unwrap() == 0);
                let trimming = &source.mapping.get().unwrap().as_ref().unwrap().trimming;
                wait_until("trimming never ends", || !trimming.load(Ordering::Relaxed));
            }
            drop(source);
            wait_until("the file stays mapped", || resident(&name).is_none());
        }
    }
}
