//! Kinds of values in blocks of 1024, whole ones where a part would do.

use crossdock_plugin_api::{Error, Result};

use super::{BLOCK, each, in_block, ptype};
use crate::wire::PType;

/// `fastlanes.delta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// How many differences, whole blocks of them.
    pub deltas_len: usize,
    /// Values before the first one in its block, below 1024.
    pub offset: u32,
}

impl Delta {
    /// Reads it for a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut it = Self::default();
        each(metadata, |number, value| {
            match number {
                1 => it.deltas_len = value.usize()?,
                2 => it.offset = in_block(value)?,
                _ => {}
            }
            Ok(())
        })?;
        whole_blocks(it.deltas_len, it.offset, length, "differences")?;
        Ok(it)
    }
}

/// `fastlanes.rle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rle {
    /// How many values.
    pub values_len: usize,
    /// How many positions among them, whole blocks of them.
    pub indices_len: usize,
    /// The positions' type: u8 or u16.
    pub indices_ptype: PType,
    /// How many blocks say where their values begin.
    pub values_idx_offsets_len: usize,
    /// The type of that, unsigned.
    pub values_idx_offsets_ptype: PType,
    /// Values before the first one in its block, below 1024.
    pub offset: u32,
}

impl Rle {
    /// Reads it for a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut it = Self {
            values_len: 0,
            indices_len: 0,
            indices_ptype: PType::U8,
            values_idx_offsets_len: 0,
            values_idx_offsets_ptype: PType::U8,
            offset: 0,
        };
        each(metadata, |number, value| {
            match number {
                1 => it.values_len = value.usize()?,
                2 => it.indices_len = value.usize()?,
                3 => it.indices_ptype = ptype(value)?,
                4 => it.values_idx_offsets_len = value.usize()?,
                5 => it.values_idx_offsets_ptype = ptype(value)?,
                6 => it.offset = in_block(value)?,
                _ => {}
            }
            Ok(())
        })?;
        if !matches!(it.indices_ptype, PType::U8 | PType::U16) {
            return Err(Error::bad_data(format!(
                "positions of type {}, expected u8 or u16",
                it.indices_ptype
            )));
        }
        it.values_idx_offsets_ptype.unsigned("where the values of blocks begin")?;
        whole_blocks(it.indices_len, it.offset, length, "positions")?;
        if it.values_idx_offsets_len != it.indices_len / BLOCK as usize {
            return Err(Error::bad_data(format!(
                "{} blocks say where their values begin, expected one for each of {} positions in blocks of {}",
                it.values_idx_offsets_len, it.indices_len, BLOCK
            )));
        }
        Ok(it)
    }
}

fn whole_blocks(count: usize, offset: u32, length: usize, what: &str) -> Result<()> {
    let needed = length.checked_add(offset as usize);
    if !count.is_multiple_of(BLOCK as usize) || needed.is_none_or(|needed| needed > count) {
        return Err(Error::bad_data(format!(
            "{count} {what}, expected a multiple of {} that holds {length} values after {offset}",
            BLOCK
        )));
    }
    Ok(())
}
