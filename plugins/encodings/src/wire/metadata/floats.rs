//! Kinds of floats.

use crossdock_plugin_api::{Error, Result};

use super::{Patches, each, once, ptype};
use crate::wire::PType;
use crate::wire::protobuf::{Value, varint};

/// `vortex.alp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alp {
    /// Of the power of ten that divides, at most 10 for f32 and 18 for f64.
    pub exp_e: u32,
    /// Of the power of ten that multiplies, likewise.
    pub exp_f: u32,
    /// What did not fit.
    pub patches: Option<Patches>,
}

impl Alp {
    /// Reads it for a node with `length` floats of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        let most = match of {
            PType::F32 => 10,
            PType::F64 => 18,
            other => return Err(Error::bad_data(format!("values of type {other}, expected f32 or f64"))),
        };
        let exponent = |value: Value<'_>| {
            let value = value.u32()?;
            if value > most {
                return Err(Error::bad_data(format!(
                    "an exponent of {value}, expected 0 to {most} for {of}"
                )));
            }
            Ok(value)
        };
        let mut it = Self::default();
        each(metadata, |number, value| {
            match number {
                1 => it.exp_e = exponent(value)?,
                2 => it.exp_f = exponent(value)?,
                3 => once(&mut it.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(it)
    }
}

/// `vortex.alprd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlpRd {
    /// Bits of the right part; the left part has the others, at most 16.
    pub right_bit_width: u32,
    /// What the left parts' codes stand for.
    pub dictionary: Vec<u16>,
    /// The codes' type, unsigned.
    pub left_ptype: PType,
    /// Left parts that are not in the dictionary.
    pub patches: Option<Patches>,
}

impl AlpRd {
    /// Reads it for a node with `length` floats of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        let bits = match of {
            PType::F32 | PType::F64 => 8 * of.bytes() as u32,
            other => return Err(Error::bad_data(format!("values of type {other}, expected f32 or f64"))),
        };
        let mut it =
            Self { right_bit_width: 0, dictionary: Vec::new(), left_ptype: PType::U8, patches: None };
        let mut dictionary_length = 0;
        each(metadata, |number, value| {
            match number {
                1 => it.right_bit_width = value.u32()?,
                2 => dictionary_length = value.usize()?,
                3 => left_parts(value, &mut it.dictionary)?,
                4 => it.left_ptype = ptype(value)?,
                5 => once(&mut it.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        it.left_ptype.unsigned("the codes of left parts")?;
        if !(bits - 16..bits).contains(&it.right_bit_width) {
            return Err(Error::bad_data(format!(
                "right parts of {} bits, expected {} to {} for {of}",
                it.right_bit_width,
                bits - 16,
                bits - 1
            )));
        }
        if it.dictionary.len() < dictionary_length {
            return Err(Error::bad_data(format!(
                "a dictionary of {} left parts, expected {dictionary_length}",
                it.dictionary.len()
            )));
        }
        it.dictionary.truncate(dictionary_length);
        Ok(it)
    }
}

/// Numbers one by one, or several in one field.
fn left_parts(value: Value<'_>, parts: &mut Vec<u16>) -> Result<()> {
    let part = |n: u64| {
        u16::try_from(n).map_err(|_| Error::bad_data(format!("{n} as a left part, expected at most 65535")))
    };
    let Value::Bytes(mut packed) = value else {
        parts.push(part(value.u64()?)?);
        return Ok(());
    };
    while !packed.is_empty() {
        parts.push(part(varint(&mut packed)?)?);
    }
    Ok(())
}
