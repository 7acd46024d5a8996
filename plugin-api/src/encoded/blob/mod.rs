//! Reads and writes encoded arrays as bytes, for files and connections.
//!
//! The bytes begin with a header: a head of 64 bytes, a record for each node in pre-order, and a
//! record for each buffer. The buffers follow, each at a multiple of [`ALIGNMENT`], so that they
//! can be used in place. `docs/encodings.md` describes all fields. The encoding is canonical: gaps,
//! overlaps and ranges out of bounds are errors.

mod crc;
mod fields;
mod read;
pub mod schema;
mod write;

pub use read::{Head, ParsedHeader, read};
pub use write::{BlobLayout, write_header};

/// The first bytes. A conversion of line ends, as for text files, destroys them.
pub const MAGIC: [u8; 8] = *b"CDENC\r\n\x1a";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// The size of the head in bytes.
pub const HEAD_BYTES: usize = 64;
/// The alignment of the offsets of buffers, in bytes.
pub const ALIGNMENT: u64 = 64;

/// The greatest alignment of a buffer's address that is required, in bytes: that of the widest
/// values of Arrow and Vortex. It is less than [`ALIGNMENT`] so that bytes in memory, such as
/// Python's, can usually be used in place.
const VALUE_ALIGNMENT: u64 = 16;
/// The size of a node's record without id, type and metadata.
const NODE_BYTES: usize = 32;
/// The size of a buffer's record.
const BUFFER_BYTES: usize = 24;
/// The offset of the checksum, which is zero in the bytes that it is computed of.
const CHECKSUM_AT: usize = 12;
/// The alignment of the records of nodes.
const RECORD_ALIGNMENT: usize = 8;
/// The greatest size of a header.
const MAX_HEADER_BYTES: u64 = 1 << 30;

/// The type is a Vortex DType flatbuffer.
const TYPE_DTYPE: u8 = 1;
/// The type is an Arrow schema: see [`schema`].
const TYPE_SCHEMA: u8 = 2;

/// The range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The offset from the first byte of the head.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The required alignment of its address in bytes, a power of two up to [`ALIGNMENT`].
    pub alignment: u64,
}

/// Rounds up to a multiple of `to`, a power of two. `None` on overflow.
fn rounded_up(bytes: u64, to: u64) -> Option<u64> {
    Some(bytes.checked_add(to - 1)? & !(to - 1))
}

/// The checksum of a header.
fn checksum(header: &[u8]) -> u32 {
    let (before, rest) = header.split_at_checked(CHECKSUM_AT).unwrap_or((header, &[]));
    let after = rest.get(4..).unwrap_or_default();
    crc::Crc32::new().with(before).with(&[0; 4]).with(after).value()
}
