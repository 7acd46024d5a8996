//! What each kind of array keeps beside its buffers and children, as a protobuf message. One struct a kind, read by
//! `read`; what has a range is checked against it, and what depends on the node's type or length takes that along.
//!
//! Kinds that are not here keep nothing: [`none`] holds them to it.

mod blocks;
mod floats;
mod integers;
mod nested;
mod parts;
mod patches;
mod strings;

pub use blocks::{Delta, Rle};
pub use floats::{Alp, AlpRd};
pub use integers::{BitPacked, Sequence, reference};
pub use nested::{Dict, List, ListView, RunEnd, Sparse};
pub use parts::{DateTimeParts, Decimal, DecimalByteParts};
pub use patches::Patches;
pub use strings::{Fsst, OnPair, VarBin};

use super::protobuf::{Value, fields, in_field};
use super::ptype::PType;
use crossdock_plugin_api::{Error, Result};

/// Values in a block of packed numbers; positions in a block are below it.
pub const BLOCK: u32 = 1024;

/// Holds a kind without metadata to it.
pub fn none(metadata: &[u8]) -> Result<()> {
    if !metadata.is_empty() {
        return Err(Error::bad_data(format!("{} bytes of metadata, expected none", metadata.len())));
    }
    Ok(())
}

/// Shows every field to `take`; one that it does not know it ignores. Of a field that comes twice the last one counts.
fn each<'a>(metadata: &'a [u8], mut take: impl FnMut(u32, Value<'a>) -> Result<()>) -> Result<()> {
    fields(metadata)
        .try_for_each(|field| {
            let (number, value) = field?;
            take(number, value).map_err(|e| in_field(e, number))
        })
        .map_err(|e| e.context("its metadata"))
}

/// A type of numbers; the first one, which is u8, where the field is absent.
fn ptype(value: Value<'_>) -> Result<PType> {
    PType::from_wire(value.u64()?)
}

/// A position in a block.
fn in_block(value: Value<'_>) -> Result<u32> {
    let offset = value.u32()?;
    if offset >= BLOCK {
        return Err(Error::bad_data(format!(
            "an offset of {offset} into a block, expected less than {BLOCK}"
        )));
    }
    Ok(offset)
}

/// A message that may come once: parts of one message in several fields would have to be merged.
fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::bad_data("it comes twice")),
    }
}

/// What has to be there.
fn required<T>(value: Option<T>, what: &str) -> Result<T> {
    value.ok_or_else(|| Error::bad_data(format!("its metadata: {what} is missing")))
}

#[cfg(test)]
mod tests;
