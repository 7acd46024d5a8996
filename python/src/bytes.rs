//! Bytes of Python objects, in place; and file objects to write to.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::source::read_from;
use crossdock_plugin_api::{ByteSink, ByteSource, Error, Result};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::errors::usage;

/// The bytes of an object with the buffer protocol, which arrays may use in place. Who changes them meanwhile changes the
/// arrays.
pub struct BufferSource {
    address: usize,
    bytes: usize,
    /// Holds the export, so that the object can neither go nor be resized. Dropped without the lock, it goes at the next
    /// moment at which somebody has it.
    _view: Py<PyMemoryView>,
}

impl BufferSource {
    /// # Errors
    /// BufferError for what has no buffer, or none of contiguous bytes.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(object)?;
        let view = if view.getattr("format")?.extract::<String>()? == "B" {
            view
        } else {
            view.call_method1("cast", ("B",))?.cast_into::<PyMemoryView>()?
        };
        let buffer = PyBuffer::<u8>::get(&view)?;
        if !buffer.is_c_contiguous() {
            return Err(usage("the bytes are not contiguous: make a copy with bytes(...)"));
        }
        Ok(Self { address: buffer.buf_ptr() as usize, bytes: buffer.len_bytes(), _view: view.unbind() })
    }

    fn bytes(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the view's export, which lives as long as `self`, is of so many contiguous bytes.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }
}

impl ByteSource for BufferSource {
    fn name(&self) -> &str {
        "bytes in memory"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        Ok(read_from(self.bytes(), offset, to))
    }

    fn map(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}

/// A Python object with a method `write`.
pub struct FileSink {
    file: Py<PyAny>,
    /// What the object raised, for whoever waits for the end.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl FileSink {
    /// With where to look for what it raised.
    pub fn new(file: Py<PyAny>) -> (Self, Arc<Mutex<Option<PyErr>>>) {
        let raised = Arc::default();
        (Self { file, raised: Arc::clone(&raised) }, raised)
    }
}

impl ByteSink for FileSink {
    fn name(&self) -> &str {
        "a file object"
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let written = Python::attach(|py| -> PyResult<()> {
            while !bytes.is_empty() {
                let answer = self.file.bind(py).call_method1("write", (PyBytes::new(py, bytes),))?;
                // A raw file may take less; one that answers None has taken all.
                let n: usize = answer.extract::<Option<usize>>()?.unwrap_or(bytes.len());
                if n == 0 || n > bytes.len() {
                    return Err(usage(format!("write({} bytes) answered {n}", bytes.len())));
                }
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Ok(())
        });
        written.map_err(|error| {
            let words = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Error::io(format!("the file object could not be written to: {words}"))
        })
    }
}
