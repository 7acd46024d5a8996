//! Kinds whose values are other arrays' values: dictionaries, runs, lists, and what is mostly one value.

use crossdock_plugin_api::{Error, Result};

use super::{Patches, each, once, ptype, required};
use crate::wire::PType;

/// `vortex.dict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    /// How many values.
    pub values_len: usize,
    /// The codes' type, an integer.
    pub codes_ptype: PType,
    /// Whether codes may be null; where it is not said, they may if the node's values may.
    pub codes_nullable: Option<bool>,
}

impl Dict {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { values_len: 0, codes_ptype: PType::U8, codes_nullable: None };
        each(metadata, |number, value| {
            match number {
                1 => it.values_len = value.usize()?,
                2 => it.codes_ptype = ptype(value)?.int("codes")?,
                3 => it.codes_nullable = Some(value.bool()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(it)
    }
}

/// `vortex.runend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The ends' type, unsigned.
    pub ends_ptype: PType,
    /// How many runs.
    pub num_runs: usize,
    /// Values of the runs before the first one of the node.
    pub offset: usize,
}

impl RunEnd {
    /// Reads it for a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut it = Self { ends_ptype: PType::U8, num_runs: 0, offset: 0 };
        each(metadata, |number, value| {
            match number {
                1 => it.ends_ptype = ptype(value)?.unsigned("the ends of runs")?,
                2 => it.num_runs = value.usize()?,
                3 => it.offset = value.usize()?,
                _ => {}
            }
            Ok(())
        })?;
        if it.num_runs == 0 && (length > 0 || it.offset > 0) {
            return Err(Error::bad_data(format!("no runs for {length} values after {}", it.offset)));
        }
        if it.offset.checked_add(length).is_none_or(|end| isize::try_from(end).is_err()) {
            return Err(Error::bad_data(format!("{length} values after {} of their runs", it.offset)));
        }
        Ok(it)
    }
}

/// `vortex.sparse`. Its fill value is in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// What is not the fill value.
    pub patches: Patches,
}

impl Sparse {
    /// Reads it for a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut patches = None;
        each(metadata, |number, value| match number {
            1 => once(&mut patches, Patches::read(value.bytes()?, length)?),
            _ => Ok(()),
        })?;
        Ok(Self { patches: required(patches, "where its values lie")? })
    }
}

/// `vortex.list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// How many elements all lists have together, unused ones included.
    pub elements_len: usize,
    /// The offsets' type, an integer.
    pub offsets_ptype: PType,
}

impl List {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let ListView { elements_len, offsets_ptype, .. } = ListView::read(metadata)?;
        Ok(Self { elements_len, offsets_ptype })
    }
}

/// `vortex.listview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListView {
    /// How many elements there are, unused ones included.
    pub elements_len: usize,
    /// The offsets' type, an integer.
    pub offsets_ptype: PType,
    /// The sizes' type, an integer.
    pub sizes_ptype: PType,
}

impl ListView {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { elements_len: 0, offsets_ptype: PType::U8, sizes_ptype: PType::U8 };
        each(metadata, |number, value| {
            match number {
                1 => it.elements_len = value.usize()?,
                2 => it.offsets_ptype = ptype(value)?.int("offsets")?,
                3 => it.sizes_ptype = ptype(value)?.int("sizes")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(it)
    }
}
