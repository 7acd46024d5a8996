//! Reads arrays on the host, value by value, in order to concatenate and compare dictionaries.
//!
//! This module copies buffers that the host cannot read, so callers use it only for small arrays.

mod append;
mod bits;
mod builder;
mod key;
mod view;

pub use bits::{count_set, shifted};
pub use builder::{Builder, same_buffers};
pub use key::ValueIndex;
pub use view::HostArray;

use crate::DeviceArray;
use arrow_schema::DataType;
use crossdock_memory::{Error, Result, Stream};

/// Concatenates the values of `parts` into one array of `data_type`.
pub fn concat(data_type: &DataType, parts: &[&DeviceArray], stream: &Stream) -> Result<DeviceArray> {
    let views = parts.iter().map(|part| HostArray::new(part, stream)).collect::<Result<Vec<_>>>()?;
    let mut builder = Builder::new(data_type);
    views.iter().try_for_each(|view| builder.append(view, 0, view.len()))?;
    builder.finish(stream)
}

/// Replaces keys `start..start + len` of a dictionary array: key `k` becomes `positions[k]`, and a
/// null key becomes 0.
///
/// # Errors
///
/// Returns an error if a key is not an index of `positions`, or if a position does not fit into the
/// key type.
pub fn remap_keys(array: &HostArray<'_>, start: usize, len: usize, positions: &[usize]) -> Result<Vec<u8>> {
    let width = array.key_width()?;
    let unsigned = matches!(array.layout.dictionary, Some((keys, _)) if keys.is_unsigned_integer());
    let max_key = u64::MAX >> (64 - 8 * width as u32 + u32::from(!unsigned));
    let mut out = Vec::with_capacity(len.saturating_mul(width).min(1 << 30));
    for i in start..start + len {
        let position = if array.is_null(i) {
            0
        } else {
            let key = array.dictionary_key(i)?;
            *positions.get(key).ok_or_else(|| {
                array.wrong(format!(
                    "dictionary key {key} is out of range: the dictionary has {} values",
                    positions.len()
                ))
            })?
        };
        if position as u64 > max_key {
            return Err(Error::unsupported(format!(
                "the dictionaries of all batches have more values in total than keys of {width} bytes can address: use \
                 wider keys, or write an Arrow IPC stream, which may have a dictionary for each batch"
            )));
        }
        out.extend(position.to_le_bytes().iter().take(width));
    }
    Ok(out)
}
