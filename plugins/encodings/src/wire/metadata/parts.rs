//! Decimals, and kinds that keep parts of their values apart.

use crossdock_plugin_api::{Error, Result};

use super::{each, ptype};
use crate::wire::PType;

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
