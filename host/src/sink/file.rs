//! A file that appears whole or not at all.

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

/// Written without a name where the file system can (nothing is left even if the process is killed), else under a
/// temporary one in the target's directory; given its name at the end. Dropped before that, it is gone.
pub struct OutputFile {
    name: Arc<str>,
    target: PathBuf,
    /// The temporary name; `None` for a file without one.
    temporary: Option<PathBuf>,
    durable: bool,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None` once it was committed or given up: a sink that a plugin still holds then writes nowhere.
    file: Option<std::io::BufWriter<File>>,
    bytes_written: u64,
}

impl OutputFile {
    /// Prepares to write `target`. A symbolic link is followed; a file that is there keeps its mode, and its content
    /// until the end.
    pub fn create(target: &Path) -> Result<Self> {
        let failed = |error| Error::io(format!("cannot write '{}'", target.display()), error);
        let resolved = target.canonicalize().unwrap_or_else(|_| target.to_path_buf());
        if resolved.is_dir() || resolved.file_name().is_none() {
            return Err(failed(std::io::Error::from_raw_os_error(libc::EISDIR)));
        }
        let mode = std::fs::metadata(&resolved).ok().map(|there| there.permissions().mode());
        let (file, temporary) = open_beside(&resolved).map_err(failed)?;
        if let Some(mode) = mode {
            // Best effort: a mode that cannot be kept is no reason to refuse.
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

    /// Whether its bytes are on the disk before it appears (`fsync`). Off unless asked for.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    pub(crate) fn unfinished(&self) -> Option<&Path> {
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

    /// Gives it its name.
    pub fn commit(mut self) -> Result<()> {
        self.try_commit().map_err(|error| Error::io(format!("cannot write '{}'", self.name), error))
    }

    fn try_commit(&mut self) -> std::io::Result<()> {
        let file = self.state.lock().unwrap_or_else(PoisonError::into_inner).file.take();
        let mut file = file.ok_or_else(|| std::io::Error::other("it was given up before"))?;
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
        // What is still in the buffer is not worth writing any more.
        drop(file.map(std::io::BufWriter::into_parts));
        if let Some(temporary) = &self.temporary {
            remove(temporary);
        }
    }
}

fn remove(path: &Path) {
    // There is nobody to tell, and nothing else to try.
    let _ = std::fs::remove_file(path);
}

/// The exporter's end of it.
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
            ApiError::invalid_argument(format!("'{}': written to after the end", self.name))
        })?;
        file.write_all(bytes).map_err(|error| write_error(&self.name, &error))?;
        state.bytes_written += bytes.len() as u64;
        Ok(())
    }
}

/// A new file in the target's directory: nameless if the file system can, else with a temporary name.
fn open_beside(target: &Path) -> std::io::Result<(File, Option<PathBuf>)> {
    let mut nameless = File::options();
    nameless.write(true).mode(0o666).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    if let Ok(file) = nameless.open(directory(target)) {
        return Ok((file, None));
    }
    with_temporary_name(target, |path| File::options().write(true).create_new(true).open(path))
        .map(|(file, path)| (file, Some(path)))
}

/// Gives a nameless file a temporary name. The last step, a rename, replaces what is there; linking cannot.
fn link(file: &File, target: &Path) -> std::io::Result<PathBuf> {
    let from = c_path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let link = |path: &Path| {
        let to = c_path(path)?;
        // SAFETY: two NUL-terminated paths, alive for the call.
        let failed = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    with_temporary_name(target, link).map(|((), path)| path)
}

fn with_temporary_name<T>(
    target: &Path,
    make: impl Fn(&Path) -> std::io::Result<T>,
) -> std::io::Result<(T, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory(target).join(format!(".crossdock-{}-{n}.part", std::process::id()));
        match make(&path) {
            // Left by a process of the same number that was killed.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            result => return result.map(|made| (made, path)),
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
    fn a_file_with_a_temporary_name_says_it_and_is_removed_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("temporary");
        std::fs::write(&path, "").unwrap();
        // Which of them there is, the file system decides.
        let output = |temporary| OutputFile {
            name: "target".into(),
            target: folder.path().join("target"),
            temporary,
            durable: false,
            state: Arc::new(Mutex::new(State { file: None, bytes_written: 0 })),
        };
        assert_eq!(output(None).unfinished(), None);
        let named = output(Some(path.clone()));
        assert_eq!(named.unfinished(), Some(path.as_path()));
        drop(named);
        assert!(!path.exists());
    }
}
