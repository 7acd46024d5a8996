//! Writes headers of encoded arrays.

use super::{
    ALIGNMENT, BUFFER_BYTES, BufferRange, CHECKSUM_AT, HEAD_BYTES, MAGIC, MAX_HEADER_BYTES, NODE_BYTES,
    RECORD_ALIGNMENT, TYPE_DTYPE, TYPE_SCHEMA, VALUE_ALIGNMENT, VERSION, checksum, rounded_up, schema,
};
use crate::encoded::{EncodedArray, EncodedNode};
use crate::error::{Error, Result};

/// The header of an array, and the positions at which the caller must write the buffers.
pub struct BlobLayout {
    /// The header.
    pub header: Vec<u8>,
    /// The positions of the buffers, in their order in the array. The caller must fill the gaps
    /// with zeros.
    pub buffers: Vec<BufferRange>,
    /// The size of the header and all buffers in bytes.
    pub total_bytes: u64,
}

/// Writes the header of an array. Does not read the buffers.
///
/// # Errors
/// Returns an error if a buffer has been taken, a type is invalid, or a size exceeds its limit.
pub fn write_header(array: &EncodedArray) -> Result<BlobLayout> {
    let mut header = vec![0; HEAD_BYTES];
    let mut lengths = Vec::new();
    for index in 0..array.n_nodes() {
        let node = array.node(index)?;
        write_node(&mut header, node)?;
        for i in 0..node.n_buffers() {
            let buffer = node.available_buffer(i)?;
            lengths.push((buffer.bytes, buffer.alignment.clamp(1, VALUE_ALIGNMENT)));
        }
    }
    let header_bytes = (header.len() + lengths.len() * BUFFER_BYTES) as u64;
    if header_bytes > MAX_HEADER_BYTES {
        return Err(Error::unsupported(format!(
            "an encoded array has a header of {header_bytes} bytes, expected at most {MAX_HEADER_BYTES}"
        )));
    }
    let too_long = || Error::bad_data("an encoded array has buffers of more than 2^64 bytes in total");
    let mut end = header_bytes;
    let mut buffers = Vec::with_capacity(lengths.len());
    for (bytes, alignment) in lengths {
        let offset = rounded_up(end, ALIGNMENT).ok_or_else(too_long)?;
        end = offset.checked_add(bytes).ok_or_else(too_long)?;
        header.extend(offset.to_le_bytes());
        header.extend(bytes.to_le_bytes());
        header.extend((alignment as u32).to_le_bytes());
        header.extend([0; 4]);
        buffers.push(BufferRange { offset, bytes, alignment });
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
    Ok(BlobLayout { header, buffers, total_bytes: end })
}

fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = header.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}

fn write_node(header: &mut Vec<u8>, node: EncodedNode<'_>) -> Result<()> {
    let (kind, logical_type) = match node.dtype() {
        Some(dtype) => (TYPE_DTYPE, dtype.to_vec()),
        // SAFETY: `EncodedArray::from_raw` requires that the schemas are valid for as long as the
        // array.
        None => (TYPE_SCHEMA, unsafe { schema::write(node.schema()?) }.map_err(|e| e.context(node.path()))?),
    };
    let (id, metadata) = (node.encoding().as_bytes(), node.metadata());
    let too_long = |_| node.wrong("the id, type or metadata is too long");
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
