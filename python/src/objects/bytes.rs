//! Reads bytes of Python objects in place, and writes to file objects.

use std::sync::{Arc, Mutex, PoisonError};

use crossdock::source::read_from;
use crossdock_plugin_api::{ByteSink, ByteSource, Error, Result};
use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMemoryView, PyType};

use crate::runtime::errors::usage;

/// The bytes of an object with the buffer protocol. Arrays may use them in place, so a program that
/// changes the bytes changes the arrays.
pub struct BufferSource {
    address: usize,
    bytes: usize,
    /// Keeps the object alive and prevents resizing. If it is dropped without the interpreter's
    /// lock, PyO3 releases it the next time that a thread holds the lock.
    _view: Py<PyMemoryView>,
}

impl BufferSource {
    /// # Errors
    /// BufferError if the object has no buffer; UsageError if the buffer is not contiguous.
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
        // SAFETY: `_view` keeps the exported buffer of `self.bytes` contiguous bytes alive as long
        // as `self`.
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

/// A seekable Python file object, read in ranges with its methods `seek` and `read`.
pub struct FileSource {
    file: Py<PyAny>,
    /// The position of the first byte.
    start: u64,
    bytes: u64,
    /// Held while a thread moves the position and reads. It is locked before the interpreter's lock
    /// is acquired, because `read` may release the interpreter's lock.
    position: Mutex<()>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl FileSource {
    /// The `bytes` bytes of the file from the position `start` on.
    pub fn new(file: Py<PyAny>, start: u64, bytes: u64) -> Self {
        Self { file, start, bytes, position: Mutex::default(), raised: Arc::default() }
    }

    /// Where an exception of the file object is stored.
    pub fn raised(&self) -> Arc<Mutex<Option<PyErr>>> {
        self.raised.clone()
    }

    fn read(&self, py: Python<'_>, offset: u64, to: &mut [u8]) -> PyResult<usize> {
        let file = self.file.bind(py);
        file.call_method1("seek", (self.start + offset,))?;
        let mut done = 0;
        while let Some(rest) = to.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let data = file.call_method1("read", (rest.len(),))?;
            let data = PyBuffer::<u8>::get(&data)?;
            let n = data.item_count();
            let Some(rest) = rest.get_mut(..n) else {
                return Err(usage(format!("read({}) of the file object returned {n} bytes", rest.len())));
            };
            if n == 0 {
                break;
            }
            data.copy_to_slice(py, rest)?;
            done += n;
        }
        Ok(done)
    }
}

impl ByteSource for FileSource {
    fn name(&self) -> &str {
        "a file object"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let n = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX).min(to.len());
        let Some(to) = to.get_mut(..n).filter(|to| !to.is_empty()) else { return Ok(0) };
        let _position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|py| self.read(py, offset, to)).map_err(|error| {
            let message = error.to_string();
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            Error::io(format!("cannot read the file object: {message}"))
        })
    }
}

static BYTES_IO: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Whether the class of an object is `io.BytesIO`, and no subclass.
pub fn is_bytes_io(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.get_type().is(BYTES_IO.import(object.py(), "io", "BytesIO")?))
}

/// A Python file object, written to with its method `write`.
pub struct FileSink {
    file: Py<PyAny>,
    /// The method of `io.BytesIO`, if the object has exactly this class.
    write_of_bytes_io: Option<Py<PyAny>>,
    /// The exception that `write` raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl FileSink {
    /// Creates the sink. Also returns the place where the sink stores an exception.
    pub fn new(file: &Bound<'_, PyAny>) -> PyResult<(Self, Arc<Mutex<Option<PyErr>>>)> {
        let raised = Arc::default();
        let is_plain = is_bytes_io(file)? && !file.getattr("__dict__")?.contains("write")?;
        let write_of_bytes_io =
            is_plain.then(|| file.get_type().getattr("write").map(Bound::unbind)).transpose()?;
        let file = file.clone().unbind();
        Ok((Self { file, write_of_bytes_io, raised: Arc::clone(&raised) }, raised))
    }

    /// Calls the method `write`. Returns its result.
    fn call<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let Some(write) = &self.write_of_bytes_io else {
            // The method may keep its argument.
            return self.file.bind(py).call_method1("write", (PyBytes::new(py, bytes),));
        };
        let (start, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as isize);
        // SAFETY: the bytes are readable, and the view is only read. The method of `io.BytesIO`
        // copies them, and keeps no reference to the view, which is released below.
        let view = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromMemory(start, len, ffi::PyBUF_READ))
        }?;
        let written = write.bind(py).call1((&self.file, &view));
        view.call_method0("release")?;
        written
    }
}

impl ByteSink for FileSink {
    fn name(&self) -> &str {
        "a file object"
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let result = Python::attach(|py| -> PyResult<()> {
            while !bytes.is_empty() {
                let written = self.call(py, bytes)?;
                // A raw file may write fewer bytes than it received. An object that returns None
                // has written all bytes.
                let n: usize = written.extract::<Option<usize>>()?.unwrap_or(bytes.len());
                if n == 0 || n > bytes.len() {
                    return Err(usage(format!(
                        "write() of {} bytes returned {n}, expected 1 to {}",
                        bytes.len(),
                        bytes.len()
                    )));
                }
                bytes = bytes.get(n..).unwrap_or_default();
            }
            Ok(())
        });
        result.map_err(|error| {
            let message = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Error::io(format!("cannot write to the file object: {message}"))
        })
    }
}
