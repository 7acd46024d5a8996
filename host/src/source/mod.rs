//! Sources of bytes: files, pipes, memory.

mod bytes;
mod file;
mod identity;
mod pipe;

use std::io::Seek;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crossdock_plugin_api::{ByteSource, CancelFlag};

pub use bytes::{Bytes, BytesSource};
pub use crossdock_isolation::read_from;
pub use file::FileSource;
pub(crate) use identity::Identity;
pub use pipe::PipeSource;

use crate::error::{Error, Result};

/// A source of bytes for an importer.
#[derive(Clone)]
pub enum Input {
    /// A regular file.
    File(Arc<FileSource>),
    /// A file that is read once, in order, for example a pipe.
    Pipe(Arc<PipeSource>),
    /// Any other source.
    Bytes(Arc<dyn ByteSource>),
}

impl Input {
    /// Opens a path for reading. A regular file may be mapped; any other file is read in order.
    pub fn open(path: impl AsRef<Path>, cancel: &CancelFlag) -> Result<Self> {
        let path = path.as_ref();
        let failed = |error| Error::file("cannot open", path, error);
        // Without O_NONBLOCK, opening a named pipe would wait for a writer, and could not be
        // cancelled.
        let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(failed(std::io::Error::from_raw_os_error(libc::EISDIR)));
        }
        let name = path.display().to_string();
        if kind.is_file() {
            return Ok(Self::File(Arc::new(FileSource::new(file, name)?)));
        }
        Ok(Self::Pipe(Arc::new(PipeSource::new(file, name, cancel.clone()))))
    }

    /// Prevents a file from being mapped. If the file is truncated, reads then return an error
    /// instead of raising SIGBUS, but its bytes must be copied.
    pub fn without_mapping(self) -> Self {
        if let Self::File(file) = &self {
            file.leave_unmapped();
        }
        self
    }

    /// Opens standard input. A regular file at its start may be mapped; any other file is read in
    /// order.
    pub fn stdin(cancel: &CancelFlag) -> Result<Self> {
        let what = "cannot read standard input";
        let fd = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
        let mut file = std::fs::File::from(fd.map_err(|error| Error::io(what, error))?);
        let name = "standard input".to_string();
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file && file.stream_position().is_ok_and(|position| position == 0) {
            return Ok(Self::File(Arc::new(FileSource::new(file, name)?)));
        }
        Ok(Self::Pipe(Arc::new(PipeSource::new(file, name, cancel.clone()))))
    }

    /// Creates an input from bytes in memory.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(Arc::new(BytesSource::new(bytes)))
    }

    /// The input's name for messages.
    pub fn name(&self) -> &str {
        self.source().name()
    }

    pub(crate) fn source(&self) -> &dyn ByteSource {
        match self {
            Self::File(file) => &**file,
            Self::Pipe(pipe) => &**pipe,
            Self::Bytes(bytes) => &**bytes,
        }
    }

    /// The input's bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::File(file) => file.mapped(),
            Self::Pipe(_) => None,
            Self::Bytes(bytes) => bytes.map(),
        }
    }

    /// Returns the source for an importer.
    pub fn shared(&self) -> Arc<dyn ByteSource> {
        match self {
            Self::File(file) => file.clone(),
            Self::Pipe(pipe) => pipe.clone(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }

    /// Returns up to `bytes` bytes from the start of the input, without consuming them.
    pub(crate) fn head(&self, bytes: usize) -> Result<Vec<u8>> {
        let failed = |error| Error::data(format!("cannot read '{}'", self.name()), error);
        if let Self::Pipe(pipe) = self {
            return pipe.peek(bytes).map_err(failed);
        }
        let mut head = vec![0; bytes];
        let n = self.source().read_at(0, &mut head).map_err(failed)?;
        head.truncate(n);
        Ok(head)
    }
}
