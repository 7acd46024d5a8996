//! A tree's header.

use super::{
    ALIGNMENT, BUFFER_BYTES, CHECKSUM_AT, HEAD_BYTES, MAGIC, MOST_HEADER_BYTES, NODE_BYTES, Place,
    RECORD_ALIGNMENT, TYPE_DTYPE, TYPE_SCHEMA, VALUE_ALIGNMENT, VERSION, checksum, rounded_up, schema,
};
use crate::encoded::{EncodedArray, EncodedNode};
use crate::error::{Error, Result};

/// What comes before the buffers, and where they go.
pub struct Written {
    /// The first bytes of all.
    pub header: Vec<u8>,
    /// The places of the buffers, in the order of the nodes. Zeros fill the gaps.
    pub buffers: Vec<Place>,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Describes a tree. Looks at none of its buffers' bytes.
///
/// # Errors
/// A buffer was taken, a type is none of Arrow's C structs as they should be, or there are more bytes than the form has room for.
pub fn describe(array: &EncodedArray) -> Result<Written> {
    let mut header = vec![0; HEAD_BYTES];
    let mut lengths = Vec::new();
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        write_node(&mut header, node)?;
        for i in 0..node.n_buffers() {
            let buffer = node.buffer_here(i)?;
            lengths.push((buffer.bytes, buffer.alignment.clamp(1, VALUE_ALIGNMENT)));
        }
    }
    let header_bytes = (header.len() + lengths.len() * BUFFER_BYTES) as u64;
    if header_bytes > MOST_HEADER_BYTES {
        return Err(Error::unsupported(format!(
            "an encoded array whose header has {header_bytes} bytes, at most {MOST_HEADER_BYTES}"
        )));
    }
    let too_long = || Error::bad_data("an encoded array whose buffers have more bytes than there can be");
    let mut end = header_bytes;
    let mut buffers = Vec::with_capacity(lengths.len());
    for (bytes, alignment) in lengths {
        let offset = rounded_up(end, ALIGNMENT).ok_or_else(too_long)?;
        end = offset.checked_add(bytes).ok_or_else(too_long)?;
        header.extend(offset.to_le_bytes());
        header.extend(bytes.to_le_bytes());
        header.extend((alignment as u32).to_le_bytes());
        header.extend([0; 4]);
        buffers.push(Place { offset, bytes, alignment });
    }
    let count = |n: usize| (n as u32).to_le_bytes();
    put(&mut header, 0, &MAGIC);
    put(&mut header, 8, &VERSION.to_le_bytes());
    put(&mut header, 16, &end.to_le_bytes());
    put(&mut header, 24, &header_bytes.to_le_bytes());
    put(&mut header, 32, &count(array.n_nodes()));
    put(&mut header, 36, &count(buffers.len()));
    let checksum = checksum(&header);
    put(&mut header, CHECKSUM_AT, &checksum.to_le_bytes());
    Ok(Written { header, buffers, total_bytes: end })
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = header.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn write_node(header: &mut Vec<u8>, node: EncodedNode<'_>) -> Result<()> {
    let (kind, logical_type) = match node.dtype() {
        Some(dtype) => (TYPE_DTYPE, dtype.to_vec()),
        // SAFETY: a node's schema is valid for as long as its array, by the word of whoever made it.
        None => (TYPE_SCHEMA, unsafe { schema::write(node.schema()?) }.map_err(|e| e.context(node.path()))?),
    };
    let (id, metadata) = (node.encoding().as_bytes(), node.metadata());
    let too_long = |_| node.wrong("its id, type or metadata is longer than there is room for");
    let count = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(too_long);
    header.reserve(NODE_BYTES + id.len() + logical_type.len() + metadata.len() + RECORD_ALIGNMENT);
    header.extend(node.length().to_le_bytes());
    header.extend(count(metadata.len())?);
    header.extend(count(logical_type.len())?);
    header.extend(u16::try_from(id.len()).map_err(too_long)?.to_le_bytes());
    header.extend([kind, 0]);
    header.extend(count(node.n_buffers())?);
    header.extend(count(node.n_children())?);
    header.extend([0; 4]);
    header.extend(id);
    header.extend(logical_type);
    header.extend(metadata);
    header.resize(header.len().next_multiple_of(RECORD_ALIGNMENT), 0);
    Ok(())
}
