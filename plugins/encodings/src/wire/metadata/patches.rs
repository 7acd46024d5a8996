//! Metadata of patches. Patches are values that an encoding cannot represent, with their indices.

use crossdock_plugin_api::{Error, Result};

use super::{for_each_field, ptype};
use crate::wire::PType;

/// Patches. Their children are the indices, the values, and optionally the chunk offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Number of patches, at least 1.
    pub len: usize,
    /// The number that is subtracted from each index. If the node is a slice of an array, this
    /// number is the position of the slice in the array.
    pub offset: usize,
    /// The type of the indices, an unsigned integer.
    pub indices_ptype: PType,
    /// Where the patches of each block begin.
    pub chunk_offsets: Option<ChunkOffsets>,
}

/// Offsets into the patches, one for each block of 1024 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkOffsets {
    /// Number of offsets.
    pub len: usize,
    /// The type of the offsets, an unsigned integer.
    pub ptype: PType,
    /// Number of patches of the first block that belong to values before the node's first value.
    pub offset_within_chunk: usize,
}

impl Patches {
    /// Parses the patches of a node with `length` values.
    pub fn read(message: &[u8], length: usize) -> Result<Self> {
        let mut parsed = Self { len: 0, offset: 0, indices_ptype: PType::U8, chunk_offsets: None };
        let (mut chunks, mut chunks_ptype, mut within) = (0, None, 0);
        for_each_field(message, |number, value| {
            match number {
                1 => parsed.len = value.usize()?,
                2 => parsed.offset = value.usize()?,
                3 => parsed.indices_ptype = ptype(value)?,
                4 => chunks = value.usize()?,
                5 => chunks_ptype = Some(ptype(value)?),
                6 => within = value.usize()?,
                _ => {}
            }
            Ok(())
        })?;
        parsed.indices_ptype.unsigned("the indices of patches")?;
        if parsed.len == 0 || parsed.len > length {
            return Err(Error::bad_data(format!(
                "{} patches for {length} values, expected 1 to {length}",
                parsed.len
            )));
        }
        // The offset and the length each fit an `isize`, so their sum fits a `usize`.
        if isize::try_from(parsed.offset + length).is_err() {
            return Err(Error::bad_data(format!(
                "patches with an offset of {} overflow an address",
                parsed.offset
            )));
        }
        if let Some(ptype) = chunks_ptype {
            let ptype = ptype.unsigned("the chunk offsets of patches")?;
            parsed.chunk_offsets = Some(ChunkOffsets { len: chunks, ptype, offset_within_chunk: within });
        }
        Ok(parsed)
    }
}
