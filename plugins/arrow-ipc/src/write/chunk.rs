//! One buffer to write.

use crossdock_memory::{Buffer, HostView, Result, Stream};

/// The bytes of one buffer, made for the message or lying in the batch.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// Made for the message.
    Made(Vec<u8>),
    /// `bytes` bytes of a batch's buffer, from `offset` on.
    Lying { buffer: Buffer, offset: usize, bytes: usize },
}

impl Chunk {
    /// No bytes.
    pub fn empty() -> Self {
        Self::Made(Vec::new())
    }

    /// A range of `buffer`, which must have it; nothing where there is no buffer and no byte is needed.
    pub fn of(buffer: Option<&Buffer>, offset: usize, bytes: usize) -> Result<Self> {
        match buffer {
            Some(buffer) if bytes > 0 => {
                buffer.slice(offset, bytes)?;
                Ok(Self::Lying { buffer: buffer.clone(), offset, bytes })
            }
            None if bytes > 0 => {
                Err(crossdock_plugin_api::Error::bad_data(format!("a buffer of {bytes} bytes is missing")))
            }
            _ => Ok(Self::empty()),
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(bytes) => bytes.len(),
            Self::Lying { bytes, .. } => *bytes,
        }
    }

    /// Runs `f` on the bytes.
    pub fn with<T>(&self, stream: &Stream, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        match self {
            Self::Made(bytes) => f(bytes),
            Self::Lying { buffer, offset, bytes } => f(&buffer.host_view_of(*offset, *bytes, stream)?),
        }
    }
}

/// A range of a buffer before the host's eyes; empty where there is no buffer and no byte is needed.
pub fn view<'a>(
    buffer: Option<&'a Buffer>,
    offset: usize,
    bytes: usize,
    stream: &Stream,
) -> Result<Option<HostView<'a>>> {
    match buffer {
        Some(buffer) if bytes > 0 => buffer.host_view_of(offset, bytes, stream).map(Some),
        None if bytes > 0 => {
            Err(crossdock_plugin_api::Error::bad_data(format!("a buffer of {bytes} bytes is missing")))
        }
        _ => Ok(None),
    }
}
