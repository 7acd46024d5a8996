//! Passes the bytes of the file to the host's sink.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crossdock_plugin_api::{Error, Sink};

/// The first error of a sink. The crate's errors cannot carry it.
#[derive(Clone, Default)]
pub struct SinkError(Arc<Mutex<Option<Error>>>);

impl SinkError {
    /// Takes the error, if writing failed.
    pub fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: Error) -> io::Error {
        let text = error.message().to_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        io::Error::other(text)
    }
}

/// A sink of the host for the crate's writer.
pub struct HostSink {
    pub sink: Sink,
    pub error: SinkError,
}

impl io::Write for HostSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes).map_err(|error| self.error.set(error))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
