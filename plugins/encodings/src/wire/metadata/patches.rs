//! Values that did not fit an encoding, kept beside it with their positions.

use crossdock_plugin_api::{Error, Result};

use super::{each, ptype};
use crate::wire::PType;

/// Where patches lie. Their children are the positions, then the values, then, if they have them, the chunk offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// How many: at least 1.
    pub len: usize,
    /// What is taken from each position: where the node begins in the array that it was cut from.
    pub offset: usize,
    /// The positions' type, unsigned.
    pub indices_ptype: PType,
    /// Where each block's patches begin.
    pub chunk_offsets: Option<ChunkOffsets>,
}

/// An index of the patches, by blocks of 1024 values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkOffsets {
    /// How many.
    pub len: usize,
    /// Their type, unsigned.
    pub ptype: PType,
    /// How many patches of the first block were cut off with the values before the node.
    pub offset_within_chunk: usize,
}

impl Patches {
    /// The patches of a node with `length` values.
    pub fn read(message: &[u8], length: usize) -> Result<Self> {
        let mut it = Self { len: 0, offset: 0, indices_ptype: PType::U8, chunk_offsets: None };
        let (mut chunks, mut chunks_ptype, mut within) = (0, None, 0);
        each(message, |number, value| {
            match number {
                1 => it.len = value.usize()?,
                2 => it.offset = value.usize()?,
                3 => it.indices_ptype = ptype(value)?,
                4 => chunks = value.usize()?,
                5 => chunks_ptype = Some(ptype(value)?),
                6 => within = value.usize()?,
                _ => {}
            }
            Ok(())
        })?;
        it.indices_ptype.unsigned("the positions of patches")?;
        if it.len == 0 || it.len > length {
            return Err(Error::bad_data(format!(
                "{} patches for {length} values, expected 1 to {length}",
                it.len
            )));
        }
        // Both are positions in memory, so that their sum does not overflow.
        if isize::try_from(it.offset + length).is_err() {
            return Err(Error::bad_data(format!("patches with an offset of {}", it.offset)));
        }
        if let Some(ptype) = chunks_ptype {
            let ptype = ptype.unsigned("the chunk offsets of patches")?;
            it.chunk_offsets = Some(ChunkOffsets { len: chunks, ptype, offset_within_chunk: within });
        }
        Ok(it)
    }
}
