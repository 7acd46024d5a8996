//! Pipes, terminals, devices: written as it comes.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{ByteSink, CancelFlag, Error as ApiError, Result as ApiResult};

use crate::error::{Error, Result};

const BUFFER_BYTES: usize = 64 << 10;

/// A stream of bytes out of the process. Small writes are collected, large ones pass straight through. Clones are the
/// same one.
#[derive(Clone)]
pub struct StreamSink {
    name: Arc<str>,
    cancel: CancelFlag,
    state: Arc<Mutex<State>>,
}

struct State {
    file: File,
    buffer: Vec<u8>,
    bytes_written: u64,
}

impl StreamSink {
    pub(crate) fn open(path: &Path, cancel: CancelFlag) -> Result<Self> {
        let file = File::options().write(true).open(path);
        let file = file.map_err(|error| Error::io(format!("cannot write to '{}'", path.display()), error))?;
        Ok(Self::new(file, path.display().to_string(), cancel))
    }

    pub(crate) fn stdout(cancel: CancelFlag) -> Result<Self> {
        let fd = std::io::stdout().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::io("cannot write to standard output", error))?;
        Ok(Self::new(File::from(fd), "standard output".into(), cancel))
    }

    /// Writes to `file`. A write that is interrupted ends when `cancel` is set.
    pub fn new(file: File, name: String, cancel: CancelFlag) -> Self {
        let state = State { file, buffer: Vec::with_capacity(BUFFER_BYTES), bytes_written: 0 };
        Self { name: name.into(), cancel, state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
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
        let result =
            self.write_all(&mut state.file, &buffer).and_then(|()| self.write_all(&mut state.file, bytes));
        state.buffer = buffer;
        state.buffer.clear();
        result
    }

    fn write_all(&self, file: &mut File, mut bytes: &[u8]) -> ApiResult<()> {
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(ApiError::io(format!("'{}' takes no more bytes", self.name))),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) => match error.kind() {
                    std::io::ErrorKind::Interrupted if !self.cancel.is_cancelled() => {}
                    std::io::ErrorKind::Interrupted => return Err(ApiError::cancelled("cancelled")),
                    std::io::ErrorKind::BrokenPipe => {
                        return Err(ApiError::io(format!(
                            "'{}': its reader closed it (broken pipe)",
                            self.name
                        )));
                    }
                    _ => return Err(ApiError::io(format!("'{}': {error}", self.name))),
                },
            }
        }
        Ok(())
    }
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
