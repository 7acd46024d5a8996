//! The header of an object that was taken apart: everything but the contents of its buffers.
//!
//! A header begins with [`MAGIC`], the version (4 bytes, little-endian), the length of the writer's
//! release (1 byte) and the writer's release. These fields have the same format in all versions.
//! The rest is a [`Header`] in the format of postcard.

use crossdock_plugin_api::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::batch::BatchParts;
use crate::node::DeviceParts;
use crate::tree::TreeParts;

/// The first bytes of a header.
pub const MAGIC: [u8; 8] = *b"CDPARTS\0";
/// The version of the format. Readers reject all other versions.
pub const VERSION: u32 = 1;

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

/// The release that writes these headers.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

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
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.push(RELEASE.len() as u8);
        bytes.extend(RELEASE.as_bytes());
        postcard::to_extend(self, bytes)
            .map_err(|error| Error::internal(format!("cannot write the header of parts: {error}")))
    }

    /// Parses a header. The places of buffers are not checked.
    ///
    /// # Errors
    /// - bad data: the bytes are not exactly one header
    /// - unsupported: the header has another version
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let not_a_header = || {
            Error::bad_data(format!(
                "{} bytes that are not the header of parts: expected bytes that begin with \"CDPARTS\"",
                bytes.len()
            ))
        };
        let (version, rest) =
            bytes.strip_prefix(&MAGIC).and_then(<[u8]>::split_first_chunk).ok_or_else(not_a_header)?;
        let (len, rest) = rest.split_first().ok_or_else(not_a_header)?;
        let (release, rest) = rest.split_at_checked(usize::from(*len)).ok_or_else(not_a_header)?;
        let (version, release) = (u32::from_le_bytes(*version), release.escape_ascii());
        if version != VERSION {
            return Err(Error::unsupported(format!(
                "parts of version {version}, written by Crossdock {release}: Crossdock {RELEASE} reads version \
                 {VERSION}; use the same release in both processes"
            )));
        }
        match postcard::take_from_bytes(rest) {
            Ok((header, [])) => Ok(header),
            Ok((_, rest)) => Err(Error::bad_data(format!("{} bytes follow the header of parts", rest.len()))),
            Err(error) => Err(Error::bad_data(format!("the header of parts is damaged: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crossdock_plugin_api::{Code, Device};

    use super::*;

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
