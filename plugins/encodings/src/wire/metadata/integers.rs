//! Kinds of integers, and bools.

use arrow_schema::{DataType, Field};
use crossdock_plugin_api::{Error, Result};

use super::{Patches, each, in_block, once, required};
use crate::wire::PType;
use crate::wire::scalar::{Number, Scalar, number};

/// `fastlanes.bitpacked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitPacked {
    /// Bits of each value, 0 to those of its type.
    pub bit_width: u32,
    /// Values before the first one in its block, below 1024.
    pub offset: u32,
    /// What did not fit.
    pub patches: Option<Patches>,
}

impl BitPacked {
    /// Reads it for a node with `length` integers of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        of.int("packed values")?;
        let mut it = Self::default();
        each(metadata, |number, value| {
            match number {
                1 => it.bit_width = value.u32()?,
                2 => it.offset = in_block(value)?,
                3 => once(&mut it.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        let most = 8 * of.bytes() as u32;
        if it.bit_width > most {
            return Err(Error::bad_data(format!(
                "{of} packed into {} bits, expected 0 to {most}",
                it.bit_width
            )));
        }
        Ok(it)
    }
}

/// `fastlanes.for`: what is added to every value of type `of`.
pub fn reference(metadata: &[u8], of: PType) -> Result<Number> {
    of.int("values with a reference")?;
    number(metadata, of).map_err(|e| e.context("its reference"))
}

/// `vortex.sequence`: value i is `base + i * multiplier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The first value.
    pub base: Number,
    /// The step, of either sign whatever the values' type.
    pub multiplier: i128,
}

impl Sequence {
    /// Reads it for a node with `length` integers of type `of`, of which the last one has to fit its type too.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        of.int("the values of a sequence")?;
        let (mut base, mut multiplier) = (None, None);
        each(metadata, |field, value| match field {
            1 => once(&mut base, number(value.bytes()?, of)?),
            2 => once(&mut multiplier, step(value.bytes()?)?),
            _ => Ok(()),
        })?;
        let it = Self { base: required(base, "its base")?, multiplier: required(multiplier, "its step")? };
        let first = it.base.int().unwrap_or_default();
        let last = (length.saturating_sub(1) as i128).checked_mul(it.multiplier);
        let last = last.and_then(|steps| steps.checked_add(first));
        last.and_then(|last| Number::from_int(last, of).ok()).map(|_| it).ok_or_else(|| {
            Error::bad_data(format!(
                "a sequence of {length} values from {first} on in steps of {}, which does not fit into {of}",
                it.multiplier
            ))
        })
    }
}

/// A step is signed or unsigned, whatever the values are.
fn step(message: &[u8]) -> Result<i128> {
    let read = |data_type| Scalar::read(message, &Field::new("", data_type, false));
    let value = read(DataType::Int64).or_else(|_| read(DataType::UInt64))?;
    match value {
        Scalar::Number(number) => Ok(number.int().unwrap_or_default()),
        other => Err(Error::bad_data(format!("{other:?}, expected an integer"))),
    }
}
