//! Metadata of integer encodings.

use arrow_schema::{DataType, Field};
use crossdock_plugin_api::{Error, Result};

use super::{Patches, for_each_field, in_block, required, set_once};
use crate::wire::PType;
use crate::wire::scalar::{Number, Scalar, number};

/// `fastlanes.bitpacked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitPacked {
    /// Bits per value, 0 to the width of its type.
    pub bit_width: u32,
    /// Index of the first value in its block, below 1024.
    pub offset: u32,
    /// Values that did not fit into the packed bits.
    pub patches: Option<Patches>,
}

impl BitPacked {
    /// Parses the metadata of a node with `length` integers of type `of`.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        of.int("packed values")?;
        let mut parsed = Self::default();
        for_each_field(metadata, |number, value| {
            match number {
                1 => parsed.bit_width = value.u32()?,
                2 => parsed.offset = in_block(value)?,
                3 => set_once(&mut parsed.patches, Patches::read(value.bytes()?, length)?)?,
                _ => {}
            }
            Ok(())
        })?;
        let max = 8 * of.bytes() as u32;
        if parsed.bit_width > max {
            return Err(Error::bad_data(format!(
                "values of type {of} are packed into {} bits, expected 0 to {max}",
                parsed.bit_width
            )));
        }
        Ok(parsed)
    }
}

/// `fastlanes.for`: the reference that is added to every value of type `of`.
pub fn reference(metadata: &[u8], of: PType) -> Result<Number> {
    of.int("values with a reference")?;
    number(metadata, of).map_err(|e| e.context("the reference"))
}

/// `vortex.sequence`: value i is `base + i * multiplier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The first value.
    pub base: Number,
    /// The step. It may be negative even for unsigned values.
    pub multiplier: i128,
}

impl Sequence {
    /// Parses the metadata of a node with `length` integers of type `of`. The last value must fit
    /// the type.
    pub fn read(metadata: &[u8], of: PType, length: usize) -> Result<Self> {
        of.int("the values of a sequence")?;
        let (mut base, mut multiplier) = (None, None);
        for_each_field(metadata, |field, value| match field {
            1 => set_once(&mut base, number(value.bytes()?, of)?),
            2 => set_once(&mut multiplier, step(value.bytes()?)?),
            _ => Ok(()),
        })?;
        let parsed =
            Self { base: required(base, "the base")?, multiplier: required(multiplier, "the step")? };
        let first = parsed.base.int().unwrap_or_default();
        let last = (length.saturating_sub(1) as i128).checked_mul(parsed.multiplier);
        let last = last.and_then(|steps| steps.checked_add(first));
        last.and_then(|last| Number::from_int(last, of).ok()).map(|_| parsed).ok_or_else(|| {
            Error::bad_data(format!(
                "a sequence of {length} values from {first} in steps of {} does not fit into {of}",
                parsed.multiplier
            ))
        })
    }
}

/// Reads a step. The step may be signed although the values are unsigned, and vice versa.
fn step(message: &[u8]) -> Result<i128> {
    let read = |data_type| Scalar::read(message, &Field::new("", data_type, false));
    let value = read(DataType::Int64).or_else(|_| read(DataType::UInt64))?;
    match value {
        Scalar::Number(number) => Ok(number.int().unwrap_or_default()),
        other => Err(Error::bad_data(format!("the scalar is {other:?}, expected an integer"))),
    }
}
