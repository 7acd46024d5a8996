//! The header of an object that was taken apart: everything but the contents of its buffers.
//!
//! Its format begins with [`MAGIC`] and [`VERSION`], as the module `format` describes.

use crossdock_plugin_api::Result;
use serde::{Deserialize, Serialize};

use crate::batch::BatchParts;
use crate::format::Format;
use crate::node::DeviceParts;
use crate::tree::TreeParts;

/// The first bytes of a header.
pub const MAGIC: [u8; 8] = *b"CDPARTS\0";
/// The version of the format. Readers reject all other versions.
pub const VERSION: u32 = 1;
const FORMAT: Format = Format { magic: MAGIC, version: VERSION, of: "parts" };

/// The place of a buffer of an array: bytes of a buffer in the list. Arrays may share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The index of the buffer in the list. An empty place has any index.
    pub index: u32,
    /// The position of the first byte in the buffer.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Place {
    /// A place without bytes.
    pub const EMPTY: Self = Self { index: 0, offset: 0, bytes: 0 };
}

/// An object without the contents of its buffers.
#[derive(Serialize, Deserialize)]
pub struct Header {
    /// The object.
    pub content: Content,
    /// The device on which the object was when it was taken apart.
    pub device: DeviceParts,
    /// The lengths of the buffers in bytes.
    pub buffers: Vec<u64>,
}

/// The kinds of objects.
#[derive(Serialize, Deserialize)]
pub enum Content {
    /// A table.
    Table(TableParts),
    /// A table of one column that stands for this column.
    Column(TableParts),
    /// A schema.
    Schema(Vec<u8>),
    /// A schema of one field that stands for this field.
    Field(Vec<u8>),
    /// An encoded array.
    Encoded(TreeParts<Place>),
}

/// A table without the contents of its buffers.
#[derive(Serialize, Deserialize)]
pub struct TableParts {
    /// The schema, as `write_schema` writes it.
    pub schema: Vec<u8>,
    /// The batches, in order.
    pub batches: Vec<BatchParts<Place>>,
}

impl Content {
    /// The name of the kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::Column(_) => "a column",
            Self::Schema(_) => "a schema",
            Self::Field(_) => "a field",
            Self::Encoded(_) => "an encoded array",
        }
    }
}

impl Header {
    /// Returns the bytes of the header.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn write(&self) -> Result<Vec<u8>> {
        FORMAT.write(self)
    }

    /// Parses a header. The places of buffers are not checked.
    ///
    /// # Errors
    /// - bad data: the bytes are not exactly one header
    /// - unsupported: the header has another version
    pub fn read(bytes: &[u8]) -> Result<Self> {
        FORMAT.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::{Code, Device};

    use super::*;
    use crate::format::RELEASE;

    fn field() -> Vec<u8> {
        let header =
            Header { content: Content::Field(vec![1, 2]), device: Device::CPU.into(), buffers: vec![3] };
        header.write().unwrap()
    }

    #[test]
    fn reads_what_it_writes_and_rejects_each_truncation() {
        let bytes = field();
        let header = Header::read(&bytes).unwrap();
        assert!(matches!(header.content, Content::Field(schema) if schema == [1, 2]));
        assert_eq!((Device::from(header.device), header.buffers), (Device::CPU, vec![3]));
        for n in 0..bytes.len() {
            let error = Header::read(&bytes[..n]).err().unwrap();
            assert_eq!(error.code(), Code::BAD_DATA, "{error}");
        }
        let error = Header::read(&[&bytes[..], &[0]].concat()).err().unwrap();
        assert_eq!(error.message(), "1 bytes follow the header of parts");
    }

    #[test]
    fn names_the_release_that_wrote_another_version() {
        let mut bytes = field();
        bytes[8] = 9;
        let error = Header::read(&bytes).err().unwrap();
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains(&format!("version 9, written by Crossdock {RELEASE}")), "{error}");
    }
}
