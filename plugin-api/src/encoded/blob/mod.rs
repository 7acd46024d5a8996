//! Encoded arrays as bytes: one sequence that holds a whole tree, for files and wires.
//!
//! First a header: 64 bytes that say what follows, a record for each node in pre-order, a record for each buffer. Then the
//! buffers, each at a multiple of [`ALIGNMENT`], so that they can be used where they lie. docs/encodings.md has every field.
//! There is one place for everything, and what is read is held to that: lengths that leave a gap, say something twice or reach
//! outside are errors.

mod crc;
mod fields;
mod read;
pub mod schema;
mod write;

pub use read::{Described, Head, read};
pub use write::{Written, describe};

/// The first bytes. The line ends show whether somebody took it for text.
pub const MAGIC: [u8; 8] = *b"CDENC\r\n\x1a";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes before the first node's record.
pub const HEAD_BYTES: usize = 64;
/// Buffers begin at multiples of this.
pub const ALIGNMENT: u64 = 64;

/// The most that is asked of a buffer's address: Arrow's and Vortex's widest values have 16 bytes that are looked at together.
/// So bytes that somebody holds in memory, such as Python's, can be used in place, wherever they begin.
const VALUE_ALIGNMENT: u64 = 16;
/// Bytes of a node's record without its id, type and metadata.
const NODE_BYTES: usize = 32;
/// Bytes of a buffer's record.
const BUFFER_BYTES: usize = 24;
/// Where the checksum stands, for which it counts as zeros.
const CHECKSUM_AT: usize = 12;
/// Records of nodes take a multiple of this.
const RECORD_ALIGNMENT: usize = 8;
/// The most bytes of a header.
const MOST_HEADER_BYTES: u64 = 1 << 30;

/// A type as Vortex writes it.
const TYPE_DTYPE: u8 = 1;
/// A type as Arrow's C structs have it, flat.
const TYPE_SCHEMA: u8 = 2;

/// Where one buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From the first byte of all on.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What its address has to be a multiple of, at most [`ALIGNMENT`]: bytes, a power of two.
    pub alignment: u64,
}

/// The next multiple of `to`, a power of two; `None` beyond all numbers.
fn rounded_up(bytes: u64, to: u64) -> Option<u64> {
    Some(bytes.checked_add(to - 1)? & !(to - 1))
}

/// The checksum of a header.
fn checksum(header: &[u8]) -> u32 {
    let (before, rest) = header.split_at_checked(CHECKSUM_AT).unwrap_or((header, &[]));
    let after = rest.get(4..).unwrap_or_default();
    crc::Crc32::new().with(before).with(&[0; 4]).with(after).value()
}
