//! Decimals, and kinds that keep parts of their values apart.

use crossdock_plugin_api::{Error, Result};

use super::{each, ptype};
use crate::wire::PType;
use crate::wire::protobuf::{Value, varint};

/// `vortex.decimal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// Bytes of each value: 1, 2, 4, 8, 16 or 32, whatever the precision.
    pub value_bytes: usize,
}

impl Decimal {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut kind = 0;
        each(metadata, |number, value| {
            if number == 1 {
                kind = value.u64()?;
            }
            Ok(())
        })?;
        if kind > 5 {
            return Err(Error::bad_data(format!("decimals stored as type number {kind}, expected 0 to 5")));
        }
        Ok(Self { value_bytes: 1 << kind })
    }
}

/// `vortex.decimal_byte_parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalByteParts {
    /// The only part's type, signed.
    pub ptype: PType,
}

impl DecimalByteParts {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let (mut it, mut lower) = (Self { ptype: PType::U8 }, 0);
        each(metadata, |number, value| {
            match number {
                1 => it.ptype = ptype(value)?,
                2 => lower = value.u32()?,
                _ => {}
            }
            Ok(())
        })?;
        signed(it.ptype)?;
        if lower != 0 {
            return Err(Error::unsupported(format!(
                "decimals in {} parts, expected 1",
                u64::from(lower) + 1
            )));
        }
        Ok(it)
    }
}

/// `vortex.decimal_byte_parts.v2`: its children are the highest part, and then the others, 64 bits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecimalByteWords {
    /// The highest part's type, signed.
    pub ptype: PType,
    /// The other parts' types, the higher ones first, unsigned: at most 3.
    pub lower_ptypes: Vec<PType>,
}

impl DecimalByteWords {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { ptype: PType::U8, lower_ptypes: Vec::new() };
        each(metadata, |number, value| {
            match (number, value) {
                (1, _) => it.ptype = ptype(value)?,
                (2, Value::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        it.lower_ptypes.push(PType::from_wire(varint(&mut packed)?)?);
                    }
                }
                (2, _) => it.lower_ptypes.push(ptype(value)?),
                _ => {}
            }
            Ok(())
        })?;
        signed(it.ptype)?;
        if it.lower_ptypes.len() > 3 {
            return Err(Error::bad_data(format!(
                "decimals in {} parts, expected at most 4",
                it.lower_ptypes.len() + 1
            )));
        }
        it.lower_ptypes.iter().try_for_each(|lower| lower.unsigned("lower parts").map(drop))?;
        Ok(it)
    }
}

/// The highest part has the sign.
fn signed(ptype: PType) -> Result<()> {
    if !ptype.is_signed() {
        return Err(Error::bad_data(format!("highest parts of type {ptype}, expected signed integers")));
    }
    Ok(())
}

/// `vortex.datetimeparts`: the types of its children, all integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DateTimeParts {
    pub days: PType,
    pub seconds: PType,
    pub subseconds: PType,
}

impl DateTimeParts {
    /// Reads it.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut it = Self { days: PType::U8, seconds: PType::U8, subseconds: PType::U8 };
        each(metadata, |number, value| {
            match number {
                1 => it.days = ptype(value)?.int("days")?,
                2 => it.seconds = ptype(value)?.int("seconds")?,
                3 => it.subseconds = ptype(value)?.int("parts of seconds")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(it)
    }
}
