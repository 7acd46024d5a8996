//! Regular files: mapped where that works, read at an offset where not.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crossdock_isolation::Mapping;
use crossdock_plugin_api::{ByteSource, Error as ApiError, Result as ApiResult};

use crate::error::{Error, Result};

/// A regular file of the length that it had when it was opened.
///
/// Its content is mapped, so that host memory need not be copied. Whoever cuts a mapped file short takes the ground from
/// under its readers: the system then sends SIGBUS to the process that looks at the missing part. The host asks for the
/// length before every batch and at the end ([`FileSource::check_length`]) and stops with an error, which closes all but a
/// short moment. Signal handlers are the application's to decide on, so the library installs one only when it is asked to
/// ([`crate::truncated::handle_sigbus`]; the Python package does, the command has its own). Who cannot trust the writers of a
/// file opens it with [`FileSource::unmapped`].
pub struct FileSource {
    file: Arc<File>,
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
        Ok(Self { bytes: metadata.len(), file: Arc::new(file), name, mapping: OnceLock::new() })
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

    /// Its bytes where it is mapped already.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        self.mapping.get()?.as_deref().map(Mapping::bytes)
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
        if !aside(mapping.bytes().len(), move || theirs.trim()) {
            mapping.trim();
        }
    }
}

impl Drop for FileSource {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take().flatten() {
            // It goes with its last share, here or there.
            aside(mapping.bytes().len(), move || drop(mapping));
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
        let map = || Mapping::of(self.file.clone()).ok().flatten();
        let bytes = self.mapping.get_or_init(map).as_deref().map(Mapping::bytes)?;
        // One that has grown since shows what it had.
        bytes.get(..usize::try_from(self.bytes).ok()?)
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
