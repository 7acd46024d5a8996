//! Arrays whose contents the host looks at: dictionaries, which are joined and compared value by value. Their bytes are
//! viewed in place where the host may look, and copied where not; the bulk of a batch never comes here.

mod append;
mod bits;
mod builder;
mod key;
mod view;

pub use bits::{count_set, shifted};
pub use builder::{Builder, same_buffers};
pub use key::Keys;
pub use view::HostArray;

use crate::DeviceArray;
use arrow_schema::DataType;
use crossdock_memory::{Error, Result, Stream};

/// The values of `parts`, one after another, as one array of `data_type`.
pub fn concat(data_type: &DataType, parts: &[&DeviceArray], stream: &Stream) -> Result<DeviceArray> {
    let views = parts.iter().map(|part| HostArray::new(part, stream)).collect::<Result<Vec<_>>>()?;
    let mut builder = Builder::new(data_type);
    views.iter().try_for_each(|view| builder.append(view, 0, view.len()))?;
    builder.finish(stream)
}

/// Keys `start..+len` of a dictionary array, each replaced by where its value stands in `places`; 0 where it is null.
pub fn remapped(array: &HostArray<'_>, start: usize, len: usize, places: &[usize]) -> Result<Vec<u8>> {
    let width = array.key_width()?;
    let unsigned = matches!(array.layout.dictionary, Some((keys, _)) if keys.is_unsigned_integer());
    let most = u64::MAX >> (64 - 8 * width as u32 + u32::from(!unsigned));
    let mut out = Vec::with_capacity(len.saturating_mul(width).min(1 << 30));
    for i in start..start + len {
        let place = if array.is_null(i) {
            0
        } else {
            let key = array.dictionary_key(i)?;
            *places
                .get(key)
                .ok_or_else(|| array.wrong(format!("key {key} points into {} values", places.len())))?
        };
        if place as u64 > most {
            return Err(Error::unsupported(format!(
                "the dictionaries of all batches together have more values than keys of {width} bytes can tell apart: use \
                 wider keys, or leave each batch its own (write a stream of Arrow IPC: a file has one dictionary)"
            )));
        }
        out.extend(place.to_le_bytes().iter().take(width));
    }
    Ok(out)
}
