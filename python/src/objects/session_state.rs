//! The state of a session.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossdock::registry::Way;
use crossdock::{CapsuleFormat, Session as HostSession};
use crossdock_memory::Stream;
use pyo3::PyResult;

use crate::dlpack::formats::Formats;
use crate::dlpack::producer::LEGACY_STREAM;
use crate::runtime::errors::OrRaise;

/// State of a session, shared by its tables and columns, which may outlive the session.
pub struct Shared {
    pub session: HostSession,
    /// Whether allocations call Python code, which needs the interpreter's lock. A thread that has
    /// the lock must then not wait for a lock of the host.
    pub calls_python: bool,
    formats: Mutex<Vec<(String, Way, Arc<CapsuleFormat>)>>,
    /// Formats of tensors.
    pub tensors: Formats,
    /// The device's legacy default stream, which is looked up at its first use.
    legacy_stream: OnceLock<Stream>,
}

impl Shared {
    pub fn new(session: HostSession, calls_python: bool) -> Self {
        Self {
            session,
            calls_python,
            formats: Mutex::default(),
            tensors: Formats::default(),
            legacy_stream: OnceLock::new(),
        }
    }

    /// Returns a capsule format by its name. The format is looked up at its first use, and again
    /// after a panic of its plugin.
    pub fn format(&self, name: &str, way: Way) -> crossdock::Result<Arc<CapsuleFormat>> {
        let mut formats = self.formats.lock().unwrap_or_else(PoisonError::into_inner);
        formats.retain(|(.., format)| format.is_usable());
        if let Some((.., format)) = formats.iter().find(|(known, its, _)| known == name && *its == way) {
            return Ok(format.clone());
        }
        let format = Arc::new(self.session.capsule_format(name, way)?);
        formats.push((name.to_owned(), way, format.clone()));
        Ok(format)
    }

    /// Returns the legacy default stream of the session's device, which most external libraries
    /// use.
    pub fn legacy_stream(&self) -> PyResult<&Stream> {
        if let Some(stream) = self.legacy_stream.get() {
            return Ok(stream);
        }
        let session_stream = self.session.stream();
        let (memory, device) = (session_stream.memory(), session_stream.device());
        // SAFETY: the legacy default stream exists as long as its context.
        let stream = unsafe { memory.adopt_stream(device, LEGACY_STREAM as *mut c_void) };
        let stream = stream.or_raise()?;
        Ok(self.legacy_stream.get_or_init(|| stream))
    }
}
