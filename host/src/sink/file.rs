//! Writes files that appear only when they are complete.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{ByteSink, Error as ApiError, Result as ApiResult};

use super::failure::write_error;
use crate::error::{Error, Result};

const BUFFER_BYTES: usize = 256 << 10;

/// A file without a name, or with a temporary name, until it is committed.
///
/// If the file system supports files without names, nothing remains even if the process is killed.
/// Otherwise, the file has a temporary name in the target's directory. Dropping the `OutputFile`
/// removes the file.
pub struct OutputFile {
    name: Arc<str>,
    target: PathBuf,
    /// The temporary name; `None` if the file has no name.
    temporary: Option<PathBuf>,
    durable: bool,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None` after a commit or a drop. A plugin's sink can then no longer write.
    file: Option<std::io::BufWriter<File>>,
    bytes_written: u64,
}

impl OutputFile {
    /// Prepares to write `target`. Follows symbolic links. If `target` exists, it keeps its mode,
    /// and it keeps its content until the commit.
    pub fn create(target: &Path) -> Result<Self> {
        let failed = |error| Error::file("cannot write", target, error);
        let resolved = target.canonicalize().unwrap_or_else(|_| target.to_path_buf());
        if resolved.is_dir() || resolved.file_name().is_none() {
            return Err(failed(std::io::Error::from_raw_os_error(libc::EISDIR)));
        }
        let mode = std::fs::metadata(&resolved).ok().map(|existing| existing.permissions().mode());
        let (file, temporary) = open_beside(&resolved).map_err(failed)?;
        if let Some(mode) = mode {
            // A failure to keep the mode is ignored, because the output is still useful.
            let _ = file.set_permissions(Permissions::from_mode(mode & 0o777));
        }
        let file = Some(std::io::BufWriter::with_capacity(BUFFER_BYTES, file));
        Ok(Self {
            name: target.display().to_string().into(),
            target: resolved,
            temporary,
            durable: false,
            state: Arc::new(Mutex::new(State { file, bytes_written: 0 })),
        })
    }

    /// Sets whether the bytes are flushed to disk (`fsync`) before the file appears. Off by
    /// default.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    pub(crate) fn temporary_path(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes_written
    }

    pub(crate) fn sink(&self) -> FileSink {
        FileSink { name: self.name.clone(), state: self.state.clone() }
    }

    /// Renames the file to its final name.
    pub fn commit(mut self) -> Result<()> {
        self.try_commit().map_err(|source| {
            let what = format!("cannot write '{}'", self.name);
            Error::Io { what, path: Some(self.target.clone()), source }
        })
    }

    fn try_commit(&mut self) -> std::io::Result<()> {
        let file = self.state.lock().unwrap_or_else(PoisonError::into_inner).file.take();
        let mut file = file.ok_or_else(|| std::io::Error::other("the output was already closed"))?;
        file.flush()?;
        let (file, _) = file.into_parts();
        if self.durable {
            file.sync_all()?;
        }
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => link(&file, &self.target)?,
        };
        std::fs::rename(&temporary, &self.target).inspect_err(|_| remove(&temporary))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let file = self.state.lock().unwrap_or_else(PoisonError::into_inner).file.take();
        // `into_parts` drops the buffer without writing it.
        drop(file.map(std::io::BufWriter::into_parts));
        if let Some(temporary) = &self.temporary {
            remove(temporary);
        }
    }
}

fn remove(path: &Path) {
    // A failure to remove the file cannot be handled or reported in `drop`.
    let _ = std::fs::remove_file(path);
}

/// The sink of an output file.
pub(crate) struct FileSink {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

impl ByteSink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, bytes: &[u8]) -> ApiResult<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = state.file.as_mut().ok_or_else(|| {
            ApiError::invalid_argument(format!("'{}': expected no write after the end", self.name))
        })?;
        file.write_all(bytes).map_err(|error| write_error(&self.name, &error))?;
        state.bytes_written += bytes.len() as u64;
        Ok(())
    }
}

/// Creates a file in the target's directory. The file has no name if the file system supports this,
/// and a temporary name otherwise.
fn open_beside(target: &Path) -> std::io::Result<(File, Option<PathBuf>)> {
    let mut nameless = File::options();
    nameless.write(true).mode(0o666).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    if let Ok(file) = nameless.open(directory(target)) {
        return Ok((file, None));
    }
    with_temporary_name(target, |path| File::options().write(true).create_new(true).open(path))
        .map(|(file, path)| (file, Some(path)))
}

/// Gives a temporary name to a file without a name. The later rename replaces an existing target,
/// but a link cannot replace a file.
fn link(file: &File, target: &Path) -> std::io::Result<PathBuf> {
    let from = c_path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let link = |path: &Path| {
        let to = c_path(path)?;
        // SAFETY: both paths are NUL-terminated and live until the call returns.
        let failed = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    with_temporary_name(target, link).map(|((), path)| path)
}

fn with_temporary_name<T>(
    target: &Path,
    create: impl Fn(&Path) -> std::io::Result<T>,
) -> std::io::Result<(T, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory(target).join(format!(".crossdock-{}-{n}.part", std::process::id()));
        match create(&path) {
            // A process with the same id left the file when it was killed.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            result => return result.map(|created| (created, path)),
        }
    }
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn c_path(path: &Path) -> std::io::Result<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt;
    Ok(std::ffi::CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_output_removes_its_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("temporary");
        std::fs::write(&path, "").unwrap();
        // Constructed without `create`, because `create` uses a temporary name only on some file
        // systems.
        let output = |temporary| OutputFile {
            name: "target".into(),
            target: folder.path().join("target"),
            temporary,
            durable: false,
            state: Arc::new(Mutex::new(State { file: None, bytes_written: 0 })),
        };
        assert_eq!(output(None).temporary_path(), None);
        let named = output(Some(path.clone()));
        assert_eq!(named.temporary_path(), Some(path.as_path()));
        drop(named);
        assert!(!path.exists());
    }
}
