//! Metadata of text and bytes.

use crossdock_plugin_api::{Error, Result};

use super::{for_each_field, ptype};
use crate::wire::PType;

/// `vortex.varbin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VarBin {
    /// The type of the offsets, an integer.
    pub offsets_ptype: PType,
}

impl VarBin {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self { offsets_ptype: PType::U8 };
        for_each_field(metadata, |number, value| {
            if number == 1 {
                parsed.offsets_ptype = ptype(value)?.int("offsets")?;
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

/// `vortex.fsst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsst {
    /// The type of the decoded lengths, an integer.
    pub lengths_ptype: PType,
    /// The type of the offsets into the codes, an integer.
    pub codes_offsets_ptype: PType,
}

impl Fsst {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self { lengths_ptype: PType::U8, codes_offsets_ptype: PType::U8 };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.lengths_ptype = ptype(value)?.int("decoded lengths")?,
                2 => parsed.codes_offsets_ptype = ptype(value)?.int("offsets into codes")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

/// `vortex.onpair`. Field 2 (the number of bits of a code) is ignored, because writers no longer
/// write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnPair {
    /// The type of the decoded lengths, an integer.
    pub lengths_ptype: PType,
    /// Number of tokens in the dictionary, at most 65,536.
    pub dictionary_len: usize,
    /// Number of codes.
    pub codes_len: usize,
    /// The type of the offsets into the dictionary, an integer.
    pub dictionary_offsets_ptype: PType,
    /// The type of the codes, u8 or u16.
    pub codes_ptype: PType,
    /// The type of the offsets into the codes, an integer.
    pub codes_offsets_ptype: PType,
}

impl OnPair {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self {
            lengths_ptype: PType::U8,
            dictionary_len: 0,
            codes_len: 0,
            dictionary_offsets_ptype: PType::U8,
            codes_ptype: PType::U8,
            codes_offsets_ptype: PType::U8,
        };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.lengths_ptype = ptype(value)?.int("decoded lengths")?,
                3 => parsed.dictionary_len = value.usize()?,
                4 => parsed.codes_len = value.usize()?,
                5 => parsed.dictionary_offsets_ptype = ptype(value)?.int("offsets into the dictionary")?,
                6 => parsed.codes_ptype = ptype(value)?,
                7 => parsed.codes_offsets_ptype = ptype(value)?.int("offsets into codes")?,
                _ => {}
            }
            Ok(())
        })?;
        if parsed.dictionary_len > 1 << 16 {
            return Err(Error::bad_data(format!("{} tokens, expected at most 65536", parsed.dictionary_len)));
        }
        if !matches!(parsed.codes_ptype, PType::U8 | PType::U16) {
            return Err(Error::bad_data(format!("codes of type {}, expected u8 or u16", parsed.codes_ptype)));
        }
        Ok(parsed)
    }
}
