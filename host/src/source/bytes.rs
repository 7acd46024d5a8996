//! Reads bytes in memory.

use std::sync::Arc;

use crossdock_isolation::read_from;
use crossdock_plugin_api::{ByteSource, Result};

/// Immutable bytes with an owner.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// A vector.
    Owned(Arc<Vec<u8>>),
    /// A shared slice.
    Shared(Arc<[u8]>),
    /// A static slice.
    Static(&'static [u8]),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(Arc::new(bytes))
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

/// A source of bytes in memory. Importers may use them without copying.
pub struct BytesSource(Bytes);

impl BytesSource {
    /// Creates a source of the given bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Owned(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
            Bytes::Static(bytes) => bytes,
        }
    }
}

impl ByteSource for BytesSource {
    fn name(&self) -> &str {
        "bytes in memory"
    }

    fn len(&self) -> Option<u64> {
        Some(self.bytes().len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        Ok(read_from(self.bytes(), offset, to))
    }

    fn map(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}
