//! Parses the protobuf metadata of each encoding. `read` of each struct checks ranges, which may
//! depend on the node's type and length.
//!
//! Encodings without a struct have no metadata, which [`expect_empty`] checks.

mod blocks;
mod compressed;
mod floats;
mod integers;
mod nested;
mod parts;
mod patches;
mod strings;

pub use blocks::{Delta, Rle};
pub use compressed::{Pco, Zstd};
pub use floats::{Alp, AlpRd};
pub use integers::{BitPacked, Sequence, reference};
pub use nested::{Dict, List, ListView, RunEnd, Sparse};
pub use parts::{DateTimeParts, Decimal, DecimalByteParts};
pub use patches::Patches;
pub use strings::{Fsst, OnPair, VarBin};

use super::protobuf::{Value, fields, in_field};
use super::ptype::PType;
use crossdock_plugin_api::{Error, Result};

/// Values per block.
pub const BLOCK: u32 = 1024;

/// Returns an error unless the metadata is empty.
pub fn expect_empty(metadata: &[u8]) -> Result<()> {
    if !metadata.is_empty() {
        return Err(Error::bad_data(format!("{} bytes of metadata, expected none", metadata.len())));
    }
    Ok(())
}

/// Calls `take` for every field. `take` ignores unknown fields. If a field is repeated, `take` is
/// called for each occurrence, so the last occurrence counts.
fn for_each_field<'a>(metadata: &'a [u8], mut take: impl FnMut(u32, Value<'a>) -> Result<()>) -> Result<()> {
    fields(metadata)
        .try_for_each(|field| {
            let (number, value) = field?;
            take(number, value).map_err(|e| in_field(e, number))
        })
        .map_err(|e| e.context("the metadata"))
}

/// Reads a primitive type. If the field is absent, the type has number 0, which is u8.
fn ptype(value: Value<'_>) -> Result<PType> {
    PType::from_wire(value.u64()?)
}

/// An offset within a block.
fn in_block(value: Value<'_>) -> Result<u32> {
    let offset = value.u32()?;
    if offset >= BLOCK {
        return Err(Error::bad_data(format!(
            "an offset of {offset} into a block, expected less than {BLOCK}"
        )));
    }
    Ok(offset)
}

/// Sets a message field. Rejects a field that was already set, because protobuf would merge the two
/// messages.
fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::bad_data("the field is repeated, expected the field once")),
    }
}

/// Rejects an absent field.
fn required<T>(value: Option<T>, what: &str) -> Result<T> {
    value.ok_or_else(|| Error::bad_data(format!("the metadata: {what} is missing")))
}

#[cfg(test)]
mod tests;
