//! Writes bytes to memory.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{ByteSink, Error, Result};

/// A growing vector of bytes. Clones share it.
#[derive(Clone, Default)]
pub struct VecSink(Arc<Mutex<Vec<u8>>>);

impl VecSink {
    /// An empty sink.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes and returns the bytes written so far.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn bytes_written(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

impl ByteSink for VecSink {
    fn name(&self) -> &str {
        "memory"
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut vec = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        vec.try_reserve(bytes.len()).map_err(|_| {
            Error::out_of_memory(format!("cannot allocate {} bytes after {} bytes", bytes.len(), vec.len()))
        })?;
        vec.extend_from_slice(bytes);
        Ok(())
    }
}
