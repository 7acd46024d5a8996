//! Reads and writes encoded arrays as bytes, for files and connections.
//!
//! The bytes begin with a header. It consists of a head of 64 bytes, a record for each node in
//! pre-order, and a record for each buffer. The buffers follow the header. The offset of each
//! buffer is a multiple of [`ALIGNMENT`], so that a reader can use the buffer without a copy.
//! `docs/encodings.md` describes all fields. An array has exactly one valid sequence of bytes.
//! Therefore gaps, overlaps and ranges out of bounds are errors.

mod crc;
mod fields;
mod read;
pub mod schema;
mod write;

pub use read::{Head, ParsedHeader, read};
pub use write::{BlobLayout, write_header};

/// The first bytes of an encoded array. They contain line ends. If a program treats the file as
/// text and converts its line ends, the reader therefore rejects the file.
pub const MAGIC: [u8; 8] = *b"CDENC\r\n\x1a";
/// The version that this build writes. It reads no other version.
pub const VERSION: u32 = 1;
/// The size of the head in bytes.
pub const HEAD_BYTES: usize = 64;
/// The alignment of the offsets of buffers, in bytes.
pub const ALIGNMENT: u64 = 64;

/// The maximum alignment that the address of a buffer can require, in bytes. It is the alignment of
/// the widest values of Arrow and Vortex. It is less than [`ALIGNMENT`], so that bytes in memory,
/// such as Python's `bytes`, can usually be used without a copy.
const VALUE_ALIGNMENT: u64 = 16;
/// The size in bytes of a node's record without its id, type and metadata.
const NODE_BYTES: usize = 32;
/// The size of a buffer's record, in bytes.
const BUFFER_BYTES: usize = 24;
/// The offset of the checksum in the head, in bytes. For the computation of the checksum, its own
/// bytes are zero.
const CHECKSUM_AT: usize = 12;
/// The alignment of the nodes' records, in bytes.
const RECORD_ALIGNMENT: usize = 8;
/// The maximum size of a header, in bytes.
const MAX_HEADER_BYTES: u64 = 1 << 30;

/// The code of a type that is a Vortex DType flatbuffer.
const TYPE_DTYPE: u8 = 1;
/// The code of a type that is an Arrow schema; see [`schema`].
const TYPE_SCHEMA: u8 = 2;

/// The position of a buffer in the bytes of an encoded array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The offset of the buffer from the first byte of the head, in bytes.
    pub offset: u64,
    /// The length of the buffer in bytes.
    pub bytes: u64,
    /// The alignment that the address of the buffer must have, in bytes: a power of two up to
    /// [`ALIGNMENT`].
    pub alignment: u64,
}

/// Rounds `bytes` up to a multiple of `to`, which is a power of two. `None` on overflow.
fn rounded_up(bytes: u64, to: u64) -> Option<u64> {
    Some(bytes.checked_add(to - 1)? & !(to - 1))
}

/// Computes the checksum of a header.
fn checksum(header: &[u8]) -> u32 {
    let (before, rest) = header.split_at_checked(CHECKSUM_AT).unwrap_or((header, &[]));
    let after = rest.get(4..).unwrap_or_default();
    crc::Crc32::new().with(before).with(&[0; 4]).with(after).value()
}
