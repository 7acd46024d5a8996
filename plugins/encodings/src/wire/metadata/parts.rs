//! Metadata of decimals and date-time parts.

use crossdock_plugin_api::{Error, Result};

use super::{for_each_field, ptype};
use crate::wire::PType;

/// `vortex.decimal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// Bytes per value: 1, 2, 4, 8, 16 or 32, independently of the precision.
    pub value_bytes: usize,
}

impl Decimal {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut kind = 0;
        for_each_field(metadata, |number, value| {
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
    /// The type of the only part, which must be a signed integer.
    pub ptype: PType,
}

impl DecimalByteParts {
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let (mut parsed, mut lower) = (Self { ptype: PType::U8 }, 0);
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.ptype = ptype(value)?,
                2 => lower = value.u32()?,
                _ => {}
            }
            Ok(())
        })?;
        signed(parsed.ptype)?;
        if lower != 0 {
            return Err(Error::unsupported(format!(
                "decimals in {} parts, expected 1",
                u64::from(lower) + 1
            )));
        }
        Ok(parsed)
    }
}

/// Checks that the type of the highest part is signed, because the highest part contains the sign.
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
    /// Parses the metadata.
    pub fn read(metadata: &[u8]) -> Result<Self> {
        let mut parsed = Self { days: PType::U8, seconds: PType::U8, subseconds: PType::U8 };
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.days = ptype(value)?.int("days")?,
                2 => parsed.seconds = ptype(value)?.int("seconds")?,
                3 => parsed.subseconds = ptype(value)?.int("parts of seconds")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(parsed)
    }
}
