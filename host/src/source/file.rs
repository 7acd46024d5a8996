//! Regular files: mapped where that works, read at an offset where not.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::OnceLock;

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
    mapping: OnceLock<Option<Mapping>>,
}

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

    fn mapped(&self) -> Option<&Mapping> {
        self.mapping.get()?.as_ref()
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

    /// Takes the pages that were looked at out of this process again. They stay in the system's cache, and come back
    /// when they are looked at.
    pub(crate) fn trim(&self) {
        if let Some(mapping) = self.mapped() {
            mapping.trim();
        }
    }
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
        self.mapping.get_or_init(map).as_ref().map(Mapping::bytes)
    }
}

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
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
        NonNull::new(start.cast()).map(|start| Self { start, bytes })
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
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once; whoever read it held a share of the source.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
