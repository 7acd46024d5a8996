//! Writes pipes, terminals and devices.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossdock_plugin_api::{ByteSink, CancelFlag, Error as ApiError, Result as ApiResult};

use super::failure::write_error;
use crate::error::{Error, Result};
use crate::readiness::{self, Waker};

const BUFFER_BYTES: usize = 64 << 10;

/// A stream of bytes to a pipe, a terminal or a device. Small writes are buffered, and large writes
/// are not. Clones share it.
#[derive(Clone)]
pub struct StreamSink {
    name: Arc<str>,
    is_stdout: bool,
    cancel: CancelFlag,
    waker: Waker,
    state: Arc<Mutex<State>>,
}

struct State {
    file: File,
    /// The maximum number of bytes that a single write to a ready file accepts without blocking.
    max_write_bytes: usize,
    buffer: Vec<u8>,
    bytes_written: u64,
    /// Whether the reader of the pipe has closed it.
    reader_closed: bool,
}

impl StreamSink {
    /// Opens an existing pipe or device. Opening a named pipe waits until the pipe has a reader or
    /// `cancel` is set.
    pub(crate) fn open(path: &Path, cancel: CancelFlag) -> Result<Self> {
        let is_pipe = || std::fs::metadata(path).is_ok_and(|existing| existing.file_type().is_fifo());
        loop {
            match File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
                Ok(file) => {
                    return Ok(Self::with_max_write(file, usize::MAX, path.display().to_string(), cancel));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe() => {
                    // The system does not report when the pipe gets a reader.
                    if cancel.as_cancel().wait(Duration::from_millis(readiness::NAP_MS.into())) {
                        return Err(Error::Cancelled);
                    }
                }
                Err(error) => return Err(Error::file("cannot write to", path, error)),
            }
        }
    }

    pub(crate) fn stdout(cancel: CancelFlag) -> Result<Self> {
        let fd = std::io::stdout().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::io("cannot write to standard output", error))?;
        Ok(Self { is_stdout: true, ..Self::new(File::from(fd), "standard output".into(), cancel) })
    }

    /// Creates a sink that writes to `file`. Setting `cancel` ends a wait for the reader.
    pub fn new(file: File, name: String, cancel: CancelFlag) -> Self {
        let (file, max_write_bytes) = non_blocking(file);
        Self::with_max_write(file, max_write_bytes, name, cancel)
    }

    fn with_max_write(file: File, max_write_bytes: usize, name: String, cancel: CancelFlag) -> Self {
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        let state = State { file, max_write_bytes, buffer, bytes_written: 0, reader_closed: false };
        Self {
            name: name.into(),
            is_stdout: false,
            cancel,
            waker: Waker::new(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.is_stdout
    }

    /// Whether a write has failed because the reader of the pipe had closed it.
    pub fn reader_closed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).reader_closed
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes_written
    }

    pub(crate) fn flush(&self) -> Result<()> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_out(state, &[])
            .map_err(|error| Error::data(format!("cannot write to '{}'", self.name), error))
    }

    fn write_out(&self, state: &mut State, bytes: &[u8]) -> ApiResult<()> {
        let buffer = std::mem::take(&mut state.buffer);
        let result = self.write_all(state, &buffer).and_then(|()| self.write_all(state, bytes));
        state.buffer = buffer;
        state.buffer.clear();
        result
    }

    fn write_all(&self, state: &mut State, mut bytes: &[u8]) -> ApiResult<()> {
        while !bytes.is_empty() {
            let check = || self.check_cancelled();
            readiness::wait(&state.file, libc::POLLOUT, &self.cancel, &self.waker, check)?;
            let piece = bytes.get(..state.max_write_bytes).unwrap_or(bytes);
            match state.file.write(piece) {
                Ok(0) => return Err(ApiError::io(format!("'{}' accepts no more bytes", self.name))),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => {
                    state.reader_closed |= error.kind() == ErrorKind::BrokenPipe;
                    return Err(write_error(&self.name, &error));
                }
            }
        }
        Ok(())
    }

    fn check_cancelled(&self) -> ApiResult<()> {
        if self.cancel.is_cancelled() { Err(ApiError::cancelled("cancelled")) } else { Ok(()) }
    }
}

/// Returns the file to write to instead of `file`, and the maximum number of bytes that a single
/// write accepts without blocking.
fn non_blocking(file: File) -> (File, usize) {
    let Ok(kind) = file.metadata().map(|metadata| metadata.file_type()) else {
        return (file, libc::PIPE_BUF);
    };
    if kind.is_file() {
        return (file, usize::MAX);
    }
    if kind.is_fifo() {
        // The pipe is opened again, because O_NONBLOCK applies to the open file description, which
        // other processes may share.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(file) = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            return (file, usize::MAX);
        }
    }
    // A file that is ready accepts at least this many bytes without blocking.
    (file, libc::PIPE_BUF)
}

impl ByteSink for StreamSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, bytes: &[u8]) -> ApiResult<()> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes_written += bytes.len() as u64;
        if state.buffer.len() + bytes.len() <= BUFFER_BYTES {
            state.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.write_out(state, bytes)
    }
}
