//! Metadata of dictionaries, runs, sparse arrays and lists.

use crossdock_plugin_api::{Error, Result};

use super::{Patches, for_each_field, ptype, required, set_once};
use crate::wire::PType;

/// `vortex.dict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    /// Number of values.
    pub values_len: usize,
    /// The type of the codes, an integer.
    pub codes_ptype: PType,
    /// Whether codes are nullable. If the field is absent, codes are nullable if the node is
    /// nullable.
    pub codes_nullable: Option<bool>,
}

impl Dict {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self { values_len: 0, codes_ptype: PType::U8, codes_nullable: None };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.values_len = value.usize()?,
                2 => parsed.codes_ptype = ptype(value)?.int("codes")?,
                3 => parsed.codes_nullable = Some(value.bool()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

/// `vortex.runend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The type of the ends, an unsigned integer.
    pub ends_ptype: PType,
    /// Number of runs.
    pub num_runs: usize,
    /// Number of values in the runs that precede the node's first value.
    pub offset: usize,
}

impl RunEnd {
    /// Parses the metadata of a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut parsed = Self { ends_ptype: PType::U8, num_runs: 0, offset: 0 };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.ends_ptype = ptype(value)?.unsigned("the ends of runs")?,
                2 => parsed.num_runs = value.usize()?,
                3 => parsed.offset = value.usize()?,
                _ => {}
            }
            Ok(())
        })?;
        if parsed.num_runs == 0 && (length > 0 || parsed.offset > 0) {
            return Err(Error::bad_data(format!(
                "there are no runs for {length} values after offset {}",
                parsed.offset
            )));
        }
        if parsed.offset.checked_add(length).is_none_or(|end| isize::try_from(end).is_err()) {
            return Err(Error::bad_data(format!(
                "{length} values after {} preceding values exceed the address space",
                parsed.offset
            )));
        }
        Ok(parsed)
    }
}

/// `vortex.sparse`. The fill value is in the node's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// The values that differ from the fill value, as patches.
    pub patches: Patches,
}

impl Sparse {
    /// Parses the metadata of a node with `length` values.
    pub fn read(metadata: &[u8], length: usize) -> Result<Self> {
        let mut patches = None;
        for_each_field(metadata, |number, value| match number {
            1 => set_once(&mut patches, Patches::read(value.bytes()?, length)?),
            _ => Ok(()),
        })?;
        Ok(Self { patches: required(patches, "the patches")? })
    }
}

/// `vortex.list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Number of elements, including elements that belong to no list.
    pub elements_len: usize,
    /// The type of the offsets, an integer.
    pub offsets_ptype: PType,
}

impl List {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let ListView { elements_len, offsets_ptype, .. } = ListView::read(metadata)?;
        Ok(Self { elements_len, offsets_ptype })
    }
}

/// `vortex.listview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListView {
    /// Number of elements, including elements that belong to no list.
    pub elements_len: usize,
    /// The type of the offsets, an integer.
    pub offsets_ptype: PType,
    /// The type of the sizes, an integer.
    pub sizes_ptype: PType,
}

impl ListView {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self { elements_len: 0, offsets_ptype: PType::U8, sizes_ptype: PType::U8 };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.elements_len = value.usize()?,
                2 => parsed.offsets_ptype = ptype(value)?.int("offsets")?,
                3 => parsed.sizes_ptype = ptype(value)?.int("sizes")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}
