//! Trees out of bytes that anybody may have made.

use super::fields::{Fields, wrong};
use super::{
    ALIGNMENT, BUFFER_BYTES, CHECKSUM_AT, HEAD_BYTES, MAGIC, MOST_HEADER_BYTES, NODE_BYTES, Place,
    RECORD_ALIGNMENT, TYPE_DTYPE, TYPE_SCHEMA, VERSION, checksum, rounded_up, schema,
};
use crate::encoded::{
    EncodedArray, EncodedBuffers, FEW_NODES, LogicalType, MOST_BUFFERS, MOST_ID_BYTES, MOST_METADATA_BYTES,
    MOST_NODES, NodeParts,
};
use crate::error::{Error, Result};

/// What the first [`HEAD_BYTES`] bytes say.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Bytes before the buffers.
    pub header_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    checksum: u32,
    n_nodes: usize,
    n_buffers: usize,
}

/// What a header says.
pub struct Described {
    nodes: Vec<NodeParts>,
    places: Vec<Place>,
}

impl Head {
    /// Reads the first bytes of all; more than those may be given.
    ///
    /// # Errors
    /// Bad data for what is no such thing; unsupported for other versions.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut head = Fields { rest: bytes.get(..HEAD_BYTES).unwrap_or(bytes) };
        let magic = head.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err(wrong(format_args!("they begin with {magic:02x?}, expected {MAGIC:02x?}")));
        }
        let version = head.u32()?;
        if version != VERSION {
            return Err(Error::unsupported(format!(
                "bytes of an encoded array in version {version}, and only version {VERSION} is read here"
            )));
        }
        let checksum = head.u32()?;
        let (total_bytes, header_bytes) = (head.u64()?, head.u64()?);
        let (n_nodes, n_buffers) = (head.count()?, head.count()?);
        head.zeros(HEAD_BYTES - 40)?;
        if n_nodes == 0 || n_nodes > MOST_NODES || n_buffers > MOST_BUFFERS {
            return Err(wrong(format_args!(
                "{n_nodes} nodes and {n_buffers} buffers, expected 1 to {MOST_NODES} nodes and at most {MOST_BUFFERS} buffers"
            )));
        }
        let least = HEAD_BYTES + n_nodes * (NODE_BYTES + RECORD_ALIGNMENT) + n_buffers * BUFFER_BYTES;
        if !(least as u64..=MOST_HEADER_BYTES).contains(&header_bytes) || header_bytes > total_bytes {
            return Err(wrong(format_args!(
                "a header of {header_bytes} bytes of {total_bytes} in all, for {n_nodes} nodes and {n_buffers} buffers expected \
                 {least} to {MOST_HEADER_BYTES}"
            )));
        }
        Ok(Self { header_bytes, total_bytes, checksum, n_nodes, n_buffers })
    }

    /// Bytes that the tree takes in memory once it is read, its buffers aside. A tree of few nodes takes as good as none.
    pub fn tree_bytes(&self) -> u64 {
        /// As measured, with what the allocator has around them.
        const NODE_BYTES: u64 = 512;
        const BUFFER_BYTES: u64 = 96;
        let (nodes, buffers) = (self.n_nodes.saturating_sub(FEW_NODES) as u64, self.n_buffers as u64);
        match nodes {
            0 => 0,
            nodes => self.header_bytes + nodes * NODE_BYTES + buffers * BUFFER_BYTES,
        }
    }

    /// So many bytes there are.
    ///
    /// # Errors
    /// More or fewer were expected.
    pub fn check_length(&self, bytes: u64) -> Result<()> {
        let fault = match bytes.cmp(&self.total_bytes) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Less => "they are truncated",
            std::cmp::Ordering::Greater => "something follows their end",
        };
        Err(wrong(format_args!("{fault}: expected {} bytes, got {bytes}", self.total_bytes)))
    }
}

/// Reads a whole tree's bytes. Of the buffers only their places are looked at.
///
/// # Errors
/// Bad data, saying what is wrong and at which node; unsupported for other versions.
pub fn read(bytes: &[u8]) -> Result<Described> {
    let head = Head::read(bytes)?;
    head.check_length(bytes.len() as u64)?;
    // No longer than all of them, so that it is no more than there can be.
    let header = bytes.get(..head.header_bytes as usize).unwrap_or(bytes);
    let found = checksum(header);
    if found != head.checksum {
        return Err(wrong(format_args!(
            "their header has the checksum {found:#010x}, expected {:#010x}: it was changed, or cut short",
            head.checksum
        )));
    }
    let mut rest = Fields { rest: header.get(HEAD_BYTES..).unwrap_or_default() };
    let mut nodes = Vec::new();
    for index in 0..head.n_nodes {
        nodes.push(node(&mut rest).map_err(|e| e.context(format_args!("node {index}")))?);
    }
    let mut end = head.header_bytes;
    let mut places = Vec::new();
    for index in 0..head.n_buffers {
        let place = place(&mut rest, end).map_err(|e| e.context(format_args!("buffer {index}")))?;
        end = place.offset + place.bytes;
        places.push(place);
    }
    rest.end()?;
    if end != head.total_bytes {
        return Err(wrong(format_args!(
            "their last buffer ends at {end}, expected {} bytes in all",
            head.total_bytes
        )));
    }
    Ok(Described { nodes, places })
}

impl Described {
    /// Where its buffers lie.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The tree, with the buffers that lie at its places. It keeps `kept` for as long as it lives.
    ///
    /// # Errors
    /// What is wrong with the tree: see [`EncodedArray::from_raw`].
    pub fn with_buffers(self, buffers: EncodedBuffers, kept: Option<Box<dyn Send>>) -> Result<EncodedArray> {
        EncodedArray::with(self.nodes, buffers, kept)
    }
}

fn node(from: &mut Fields<'_>) -> Result<NodeParts> {
    let length = from.u64()?;
    let (metadata_bytes, type_bytes) = (from.count()?, from.count()?);
    let (id_bytes, kind) = (usize::from(from.u16()?), from.u8()?);
    from.zeros(1)?;
    let (n_buffers, n_children) = (from.u32()?, from.u32()?);
    from.zeros(4)?;
    if id_bytes > MOST_ID_BYTES || type_bytes > MOST_METADATA_BYTES || metadata_bytes > MOST_METADATA_BYTES {
        return Err(wrong(format_args!(
            "an id of {id_bytes} bytes, a type of {type_bytes} and metadata of {metadata_bytes}, at most {MOST_ID_BYTES}, \
             {MOST_METADATA_BYTES} and {MOST_METADATA_BYTES}"
        )));
    }
    let encoding = from.text(id_bytes, "its id")?.to_owned();
    let logical_type = from.take(type_bytes)?;
    let logical_type = match kind {
        TYPE_DTYPE => LogicalType::Dtype(logical_type.to_vec()),
        TYPE_SCHEMA => LogicalType::Schema(schema::read(logical_type).map_err(|e| e.context("its type"))?),
        other => {
            return Err(wrong(format_args!(
                "a type of kind {other}, expected {TYPE_DTYPE} or {TYPE_SCHEMA}"
            )));
        }
    };
    let metadata = from.take(metadata_bytes)?.to_vec();
    let bytes = id_bytes + type_bytes + metadata_bytes;
    from.zeros(bytes.next_multiple_of(RECORD_ALIGNMENT) - bytes)?;
    Ok(NodeParts { encoding, logical_type, length, metadata, n_buffers, n_children })
}

/// A buffer that comes after what ends at `end`.
fn place(from: &mut Fields<'_>, end: u64) -> Result<Place> {
    let (offset, bytes) = (from.u64()?, from.u64()?);
    let alignment = u64::from(from.u32()?);
    from.zeros(4)?;
    if rounded_up(end, ALIGNMENT) != Some(offset) || offset.checked_add(bytes).is_none() {
        return Err(wrong(format_args!(
            "{bytes} bytes at {offset}, expected them at the first multiple of {ALIGNMENT} from {end} on"
        )));
    }
    if !alignment.is_power_of_two() || alignment > ALIGNMENT {
        return Err(wrong(format_args!(
            "an alignment of {alignment}, expected a power of two up to {ALIGNMENT}"
        )));
    }
    Ok(Place { offset, bytes, alignment })
}

// Where the fields of the head end: they are read in order, and nothing else says where each stands.
const _: () = assert!(CHECKSUM_AT == MAGIC.len() + 4);
