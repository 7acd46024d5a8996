//! Metadata of encodings in whole blocks of 1024 values.

use crossdock_plugin_api::{Error, Result};

use super::{BLOCK, for_each_field, in_block, ptype};
use crate::wire::PType;

/// `fastlanes.delta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Number of differences, a multiple of 1024.
    pub deltas_len: usize,
    /// Index of the first value in its block, below 1024.
    pub offset: u32,
}

impl Delta {
    /// Parses the metadata of a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut parsed = Self::default();
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.deltas_len = value.usize()?,
                2 => parsed.offset = in_block(value)?,
                _ => {}
            }
            Ok(())
        })?;
        whole_blocks(parsed.deltas_len, parsed.offset, length, "differences")?;
        Ok(parsed)
    }
}

/// `fastlanes.rle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rle {
    /// Number of values in the dictionaries.
    pub values_len: usize,
    /// Number of indices, a multiple of 1024.
    pub indices_len: usize,
    /// The type of the indices, u8 or u16.
    pub indices_ptype: PType,
    /// Number of offsets, one for the dictionary of each block.
    pub values_idx_offsets_len: usize,
    /// The type of the offsets, an unsigned integer.
    pub values_idx_offsets_ptype: PType,
    /// Index of the first value in its block, below 1024.
    pub offset: u32,
}

impl Rle {
    /// Parses the metadata of a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut parsed = Self {
            values_len: 0,
            indices_len: 0,
            indices_ptype: PType::U8,
            values_idx_offsets_len: 0,
            values_idx_offsets_ptype: PType::U8,
            offset: 0,
        };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.values_len = value.usize()?,
                2 => parsed.indices_len = value.usize()?,
                3 => parsed.indices_ptype = ptype(value)?,
                4 => parsed.values_idx_offsets_len = value.usize()?,
                5 => parsed.values_idx_offsets_ptype = ptype(value)?,
                6 => parsed.offset = in_block(value)?,
                _ => {}
            }
            Ok(())
        })?;
        if !matches!(parsed.indices_ptype, PType::U8 | PType::U16) {
            return Err(Error::bad_data(format!(
                "indices of type {}, expected u8 or u16",
                parsed.indices_ptype
            )));
        }
        parsed.values_idx_offsets_ptype.unsigned("the offsets of dictionaries")?;
        whole_blocks(parsed.indices_len, parsed.offset, length, "indices")?;
        if parsed.values_idx_offsets_len != parsed.indices_len / BLOCK as usize {
            return Err(Error::bad_data(format!(
                "{} offsets of dictionaries, expected one per block for {} indices in blocks of {}",
                parsed.values_idx_offsets_len, parsed.indices_len, BLOCK
            )));
        }
        Ok(parsed)
    }
}

fn whole_blocks(count: usize, offset: u32, length: usize, what: &str) -> Result<()> {
    let needed = length.checked_add(offset as usize);
    if !count.is_multiple_of(BLOCK as usize) || needed.is_none_or(|needed| needed > count) {
        return Err(Error::bad_data(format!(
            "{count} {what}, expected a multiple of {} that holds {length} values after offset {offset}",
            BLOCK
        )));
    }
    Ok(())
}
