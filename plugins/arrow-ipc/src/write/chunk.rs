//! Defines the buffers of a message.

use crossdock_memory::{Buffer, HostView, Result, Stream};

/// The bytes of one buffer of a message.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// Bytes that were produced for the message.
    Owned(Vec<u8>),
    /// A range of a batch's buffer.
    Borrowed { buffer: Buffer, offset: usize, bytes: usize },
}

impl Chunk {
    /// An empty buffer.
    pub fn empty() -> Self {
        Self::Owned(Vec::new())
    }

    /// Creates a chunk from a range of `buffer`. Returns an error if the buffer is too short, or if
    /// it is missing and `bytes` is not 0.
    pub fn from_range(buffer: Option<&Buffer>, offset: usize, bytes: usize) -> Result<Self> {
        match buffer {
            Some(buffer) if bytes > 0 => {
                buffer.slice(offset, bytes)?;
                Ok(Self::Borrowed { buffer: buffer.clone(), offset, bytes })
            }
            None if bytes > 0 => Err(crossdock_plugin_api::Error::bad_data(format!(
                "a buffer is missing, expected {bytes} bytes"
            ))),
            _ => Ok(Self::empty()),
        }
    }

    /// Size of the chunk in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Borrowed { bytes, .. } => *bytes,
        }
    }

    /// Runs `f` on the bytes.
    pub fn with<T>(&self, stream: &Stream, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        match self {
            Self::Owned(bytes) => f(bytes),
            Self::Borrowed { buffer, offset, bytes } => f(&buffer.host_view_of(*offset, *bytes, stream)?),
        }
    }
}

/// Returns a range of `buffer` that the host can read. Returns `None` if `bytes` is 0, and an error
/// if the buffer is missing.
pub fn view<'a>(
    buffer: Option<&'a Buffer>,
    offset: usize,
    bytes: usize,
    stream: &Stream,
) -> Result<Option<HostView<'a>>> {
    match buffer {
        Some(buffer) if bytes > 0 => buffer.host_view_of(offset, bytes, stream).map(Some),
        None if bytes > 0 => {
            Err(crossdock_plugin_api::Error::bad_data(format!("a buffer is missing, expected {bytes} bytes")))
        }
        _ => Ok(None),
    }
}
