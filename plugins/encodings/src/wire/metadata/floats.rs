//! Metadata of ALP and ALP-RD.

use crossdock_plugin_api::{Error, Result};

use super::{Patches, for_each_field, ptype, set_once};
use crate::wire::PType;
use crate::wire::protobuf::{Value, varint};

/// `vortex.alp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alp {
    /// Exponent of the power of ten by which the encoded integers are divided, at most 10 for f32
    /// and 18 for f64.
    pub exp_e: u32,
    /// Exponent of the power of ten by which the encoded integers are multiplied, with the same
    /// limits as the other exponent.
    pub exp_f: u32,
    /// Values that ALP could not represent.
    pub patches: Option<Patches>,
}

impl Alp {
    /// Parses the metadata of a node with `length` floats of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        let max = match of {
            PType::F32 => 10,
            PType::F64 => 18,
            other => return Err(Error::bad_data(format!("values of type {other}, expected f32 or f64"))),
        };
        let exponent = |value: Value<'_>| {
            let value = value.u32()?;
            if value > max {
                return Err(Error::bad_data(format!("an exponent of {value}, expected 0 to {max} for {of}")));
            }
            Ok(value)
        };
        let mut parsed = Self::default();
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.exp_e = exponent(value)?,
                2 => parsed.exp_f = exponent(value)?,
                3 => set_once(&mut parsed.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}

/// `vortex.alprd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlpRd {
    /// Number of bits of the right part. The left part has the remaining bits of the float, which
    /// are at most 16 bits.
    pub right_bit_width: u32,
    /// The left parts by code.
    pub dictionary: Vec<u16>,
    /// The type of the codes, an unsigned integer.
    pub left_ptype: PType,
    /// Left parts that are not in the dictionary.
    pub patches: Option<Patches>,
}

impl AlpRd {
    /// Parses the metadata of a node with `length` floats of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        let bits = match of {
            PType::F32 | PType::F64 => 8 * of.bytes() as u32,
            other => return Err(Error::bad_data(format!("values of type {other}, expected f32 or f64"))),
        };
        let mut parsed =
            Self { right_bit_width: 0, dictionary: Vec::new(), left_ptype: PType::U8, patches: None };
        let mut dictionary_length = 0;
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.right_bit_width = value.u32()?,
                2 => dictionary_length = value.usize()?,
                3 => left_parts(value, &mut parsed.dictionary)?,
                4 => parsed.left_ptype = ptype(value)?,
                5 => set_once(&mut parsed.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        parsed.left_ptype.unsigned("the codes of left parts")?;
        if !(bits - 16..bits).contains(&parsed.right_bit_width) {
            return Err(Error::bad_data(format!(
                "right parts of {} bits, expected {} to {} for {of}",
                parsed.right_bit_width,
                bits - 16,
                bits - 1
            )));
        }
        if parsed.dictionary.len() < dictionary_length {
            return Err(Error::bad_data(format!(
                "a dictionary of {} left parts, expected {dictionary_length}",
                parsed.dictionary.len()
            )));
        }
        parsed.dictionary.truncate(dictionary_length);
        Ok(parsed)
    }
}

/// Reads numbers from unpacked or packed fields.
fn left_parts(value: Value<'_>, parts: &mut Vec<u16>) -> Result<()> {
    let part = |n: u64| {
        u16::try_from(n).map_err(|_| Error::bad_data(format!("a left part is {n}, expected at most 65535")))
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
