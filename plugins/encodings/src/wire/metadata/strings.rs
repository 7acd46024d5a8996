//! Kinds of texts and bytes.

use crossdock_plugin_api::{Error, Result};

use super::{each, ptype};
use crate::wire::PType;

/// `vortex.varbin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarBin {
    /// The offsets' type, an integer.
    pub offsets_ptype: PType,
}

impl VarBin {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { offsets_ptype: PType::U8 };
        each(metadata, |number, value| {
            if number == 1 {
                it.offsets_ptype = ptype(value)?.int("offsets")?;
            }
            Ok(())
        })?;
        Ok(it)
    }
}

/// `vortex.fsst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsst {
    /// The decoded lengths' type, an integer.
    pub lengths_ptype: PType,
    /// The type of the offsets into the codes, an integer.
    pub codes_offsets_ptype: PType,
}

impl Fsst {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { lengths_ptype: PType::U8, codes_offsets_ptype: PType::U8 };
        each(metadata, |number, value| {
            match number {
                1 => it.lengths_ptype = ptype(value)?.int("decoded lengths")?,
                2 => it.codes_offsets_ptype = ptype(value)?.int("offsets into codes")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(it)
    }
}

/// `vortex.onpair`. (Field 2, the bits of a code, is no longer written.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnPair {
    /// The decoded lengths' type, an integer.
    pub lengths_ptype: PType,
    /// How many tokens the dictionary has, at most 65,536.
    pub dictionary_len: usize,
    /// How many codes.
    pub codes_len: usize,
    /// The type of the offsets into the dictionary, an integer.
    pub dictionary_offsets_ptype: PType,
    /// The codes' type: u8 or u16.
    pub codes_ptype: PType,
    /// The type of the offsets into the codes, an integer.
    pub codes_offsets_ptype: PType,
}

impl OnPair {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self {
            lengths_ptype: PType::U8,
            dictionary_len: 0,
            codes_len: 0,
            dictionary_offsets_ptype: PType::U8,
            codes_ptype: PType::U8,
            codes_offsets_ptype: PType::U8,
        };
        each(metadata, |number, value| {
            match number {
                1 => it.lengths_ptype = ptype(value)?.int("decoded lengths")?,
                3 => it.dictionary_len = value.usize()?,
                4 => it.codes_len = value.usize()?,
                5 => it.dictionary_offsets_ptype = ptype(value)?.int("offsets into the dictionary")?,
                6 => it.codes_ptype = ptype(value)?,
                7 => it.codes_offsets_ptype = ptype(value)?.int("offsets into codes")?,
                _ => {}
            }
            Ok(())
        })?;
        if it.dictionary_len > 1 << 16 {
            return Err(Error::bad_data(format!("{} tokens, expected at most 65536", it.dictionary_len)));
        }
        if !matches!(it.codes_ptype, PType::U8 | PType::U16) {
            return Err(Error::bad_data(format!("codes of type {}, expected u8 or u16", it.codes_ptype)));
        }
        Ok(it)
    }
}
