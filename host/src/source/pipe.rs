//! Reads pipes, terminals and sockets.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_plugin_api::{ByteSource, CancelFlag, Error, Result};

use crate::readiness::{self, Waker};

/// A stream of bytes of unknown length that can be read once, in order.
pub struct PipeSource {
    name: String,
    cancel: CancelFlag,
    closed: AtomicBool,
    waker: Waker,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// Bytes that were read to recognise the format. The first of these bytes is at `position`.
    ahead: Vec<u8>,
    position: u64,
    /// An error after which bytes of the stream are lost, so that reading cannot continue.
    broken: Option<Error>,
}

impl PipeSource {
    /// Creates a source that reads `file` from its current position. Setting `cancel` ends a wait
    /// for bytes.
    pub fn new(file: File, name: String, cancel: CancelFlag) -> Self {
        let state = Mutex::new(State { file, ahead: Vec::new(), position: 0, broken: None });
        Self { name, cancel, closed: AtomicBool::new(false), waker: Waker::new(), state }
    }

    /// Makes pending and future reads fail, because the remaining bytes are not needed.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Returns the next bytes, without consuming them. Returns fewer than `bytes` bytes only at the
    /// end.
    pub fn peek(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut state = self.state();
        let n_ahead = state.ahead.len();
        if n_ahead < bytes {
            let mut more = vec![0; bytes - n_ahead];
            let n = self.fill(&mut state, &mut more)?;
            more.truncate(n);
            state.ahead.extend(more);
        }
        Ok(state.ahead.iter().take(bytes).copied().collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, state: &mut State, to: &mut [u8]) -> Result<usize> {
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let result = self.read(&mut state.file, to);
        state.broken = result.as_ref().err().cloned();
        result
    }

    fn read(&self, file: &mut File, to: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            readiness::wait(file, libc::POLLIN, &self.cancel, &self.waker, || self.check())?;
            match file.read(rest) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(Error::io(format!("'{}': {error}", self.name))),
            }
        }
        Ok(done)
    }

    /// Returns an error if reading must stop.
    fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::cancelled("cancelled"));
        }
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::cancelled(format!("'{}' was closed", self.name)));
        }
        Ok(())
    }
}

impl ByteSource for PipeSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let state = &mut *self.state();
        if offset != state.position {
            return Err(Error::invalid_argument(format!(
                "'{}' can only be read in order: expected offset {}, got {offset}",
                self.name, state.position
            )));
        }
        let n = state.ahead.len().min(to.len());
        let (from_ahead, rest) = to.split_at_mut(n);
        from_ahead.copy_from_slice(state.ahead.get(..n).unwrap_or_default());
        state.ahead.drain(..n);
        let n = n + self.fill(state, rest)?;
        state.position += n as u64;
        Ok(n)
    }
}
