//! Reads encoded arrays from untrusted bytes.

use super::fields::{Fields, wrong};
use super::{
    ALIGNMENT, BUFFER_BYTES, BufferRange, CHECKSUM_AT, HEAD_BYTES, MAGIC, MAX_HEADER_BYTES, NODE_BYTES,
    RECORD_ALIGNMENT, TYPE_DTYPE, TYPE_SCHEMA, VERSION, checksum, rounded_up, schema,
};
use crate::encoded::{
    EncodedArray, EncodedBuffers, LogicalType, MAX_BUFFERS, MAX_ID_BYTES, MAX_METADATA_BYTES, MAX_NODES,
    NodeParts, UNCHARGED_NODES,
};
use crate::error::{Error, Result};

/// The contents of the head, which is the first [`HEAD_BYTES`] bytes of an encoded array.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The size of the header in bytes.
    pub header_bytes: u64,
    /// The size of the header and all buffers in bytes.
    pub total_bytes: u64,
    checksum: u32,
    n_nodes: usize,
    n_buffers: usize,
}

/// The contents of a header.
pub struct ParsedHeader {
    nodes: Vec<NodeParts>,
    buffer_ranges: Vec<BufferRange>,
}

impl Head {
    /// Reads the head from the start of `bytes`, which may be longer than the head.
    ///
    /// # Errors
    /// Returns a "bad data" error if the bytes are not a valid head, and an "unsupported" error for
    /// other versions.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut head = Fields { rest: bytes.get(..HEAD_BYTES).unwrap_or(bytes) };
        let magic = head.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err(wrong(format_args!("the magic is {magic:02x?}, expected {MAGIC:02x?}")));
        }
        let version = head.u32()?;
        if version != VERSION {
            return Err(Error::unsupported(format!(
                "the bytes of an encoded array are in version {version}, expected version {VERSION}"
            )));
        }
        let checksum = head.u32()?;
        let (total_bytes, header_bytes) = (head.u64()?, head.u64()?);
        let (n_nodes, n_buffers) = (head.count()?, head.count()?);
        head.zeros(HEAD_BYTES - 40)?;
        if n_nodes == 0 || n_nodes > MAX_NODES || n_buffers > MAX_BUFFERS {
            return Err(wrong(format_args!(
                "the header declares {n_nodes} nodes and {n_buffers} buffers, expected 1 to {MAX_NODES} nodes and at most {MAX_BUFFERS} buffers"
            )));
        }
        let min = HEAD_BYTES + n_nodes * (NODE_BYTES + RECORD_ALIGNMENT) + n_buffers * BUFFER_BYTES;
        if !(min as u64..=MAX_HEADER_BYTES).contains(&header_bytes) || header_bytes > total_bytes {
            return Err(wrong(format_args!(
                "the head declares a header of {header_bytes} bytes, {total_bytes} bytes in total, {n_nodes} nodes and {n_buffers} buffers, \
                 expected a header of {min} to {MAX_HEADER_BYTES} bytes"
            )));
        }
        Ok(Self { header_bytes, total_bytes, checksum, n_nodes, n_buffers })
    }

    /// The size in bytes of the tree in memory, without its buffers. The result is 0 for up to
    /// [`UNCHARGED_NODES`] nodes.
    pub fn tree_bytes(&self) -> u64 {
        /// The measured size of a node in memory, including the overhead of the allocator.
        const NODE_BYTES: u64 = 512;
        const BUFFER_BYTES: u64 = 96;
        let (nodes, buffers) = (self.n_nodes.saturating_sub(UNCHARGED_NODES) as u64, self.n_buffers as u64);
        match nodes {
            0 => 0,
            nodes => self.header_bytes + nodes * NODE_BYTES + buffers * BUFFER_BYTES,
        }
    }

    /// Compares the length of the bytes with the declared total length.
    ///
    /// # Errors
    /// Returns a "bad data" error if the lengths differ.
    pub fn check_length(&self, bytes: u64) -> Result<()> {
        let fault = match bytes.cmp(&self.total_bytes) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Less => "truncated",
            std::cmp::Ordering::Greater => "trailing bytes",
        };
        Err(wrong(format_args!("{fault}: expected {} bytes, got {bytes}", self.total_bytes)))
    }
}

/// Reads the header of an array. Does not read the buffers, but `bytes` must include them.
///
/// # Errors
/// Returns a "bad data" error that names the node or buffer, or an "unsupported" error for other
/// versions.
pub fn read(bytes: &[u8]) -> Result<ParsedHeader> {
    let head = Head::read(bytes)?;
    head.check_length(bytes.len() as u64)?;
    // The range is valid, because `Head::read` checks that the header is not longer than
    // `total_bytes`, which is the length of `bytes`.
    let header = bytes.get(..head.header_bytes as usize).unwrap_or(bytes);
    let actual = checksum(header);
    if actual != head.checksum {
        return Err(wrong(format_args!(
            "the checksum of the header is {actual:#010x}, expected {:#010x}",
            head.checksum
        )));
    }
    let mut rest = Fields { rest: header.get(HEAD_BYTES..).unwrap_or_default() };
    let mut nodes = Vec::new();
    for index in 0..head.n_nodes {
        nodes.push(node(&mut rest).map_err(|e| e.context(format_args!("node {index}")))?);
    }
    let mut end = head.header_bytes;
    let mut buffer_ranges = Vec::new();
    for index in 0..head.n_buffers {
        let range = buffer_range(&mut rest, end).map_err(|e| e.context(format_args!("buffer {index}")))?;
        end = range.offset + range.bytes;
        buffer_ranges.push(range);
    }
    rest.end()?;
    if end != head.total_bytes {
        return Err(wrong(format_args!("the last buffer ends at {end}, expected {}", head.total_bytes)));
    }
    Ok(ParsedHeader { nodes, buffer_ranges })
}

impl ParsedHeader {
    /// The positions of the buffers.
    pub fn buffer_ranges(&self) -> &[BufferRange] {
        &self.buffer_ranges
    }

    /// Creates the array from its buffers. `buffers` has the order of [`Self::buffer_ranges`]. The
    /// array takes ownership of `owner`, and drops it when the array is dropped.
    ///
    /// # Errors
    /// Returns an error if the tree is invalid; see [`EncodedArray::from_raw`].
    pub fn with_buffers(self, buffers: EncodedBuffers, owner: Option<Box<dyn Send>>) -> Result<EncodedArray> {
        EncodedArray::with_owner(self.nodes, buffers, owner)
    }
}

fn node(from: &mut Fields<'_>) -> Result<NodeParts> {
    let length = from.u64()?;
    let (metadata_bytes, type_bytes) = (from.count()?, from.count()?);
    let (id_bytes, kind) = (usize::from(from.u16()?), from.u8()?);
    from.zeros(1)?;
    let (n_buffers, n_children) = (from.u32()?, from.u32()?);
    from.zeros(4)?;
    if id_bytes > MAX_ID_BYTES || type_bytes > MAX_METADATA_BYTES || metadata_bytes > MAX_METADATA_BYTES {
        return Err(wrong(format_args!(
            "a node has an id of {id_bytes} bytes, a type of {type_bytes} bytes and metadata of {metadata_bytes} bytes, \
             expected at most {MAX_ID_BYTES}, {MAX_METADATA_BYTES} and {MAX_METADATA_BYTES} bytes"
        )));
    }
    let encoding = from.text(id_bytes, "the id")?.to_owned();
    let logical_type = from.take(type_bytes)?;
    let logical_type = match kind {
        TYPE_DTYPE => LogicalType::Dtype(logical_type.to_vec()),
        TYPE_SCHEMA => LogicalType::Schema(schema::read(logical_type).map_err(|e| e.context("the type"))?),
        other => {
            return Err(wrong(format_args!(
                "a node has a type of kind {other}, expected kind {TYPE_DTYPE} or {TYPE_SCHEMA}"
            )));
        }
    };
    let metadata = from.take(metadata_bytes)?.to_vec();
    let bytes = id_bytes + type_bytes + metadata_bytes;
    from.zeros(bytes.next_multiple_of(RECORD_ALIGNMENT) - bytes)?;
    Ok(NodeParts { encoding, logical_type, length, metadata, n_buffers, n_children })
}

/// Reads the position of a buffer. `end` is the offset at which the header or the previous buffer
/// ends.
fn buffer_range(from: &mut Fields<'_>, end: u64) -> Result<BufferRange> {
    let (offset, bytes) = (from.u64()?, from.u64()?);
    let alignment = u64::from(from.u32()?);
    from.zeros(4)?;
    if rounded_up(end, ALIGNMENT) != Some(offset) || offset.checked_add(bytes).is_none() {
        return Err(wrong(format_args!(
            "a buffer has {bytes} bytes at offset {offset}, expected the first multiple of {ALIGNMENT} from {end} on"
        )));
    }
    if !alignment.is_power_of_two() || alignment > ALIGNMENT {
        return Err(wrong(format_args!(
            "a buffer has an alignment of {alignment}, expected a power of two up to {ALIGNMENT}"
        )));
    }
    Ok(BufferRange { offset, bytes, alignment })
}

// The fields of the head are read in sequence, so the checksum must follow the magic bytes and the
// version.
const _: () = assert!(CHECKSUM_AT == MAGIC.len() + 4);
