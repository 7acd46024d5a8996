//! The dictionary that several arrays have in common.

use std::collections::HashMap;

use crossdock_memory::{Error, Result, Stream};

use crate::DeviceArray;
use crate::by_value::{Builder, HostArray, Keys, remapped, same_buffers};
use crate::take::from_first_bit;

/// The chunks with one dictionary; `None` where they have it already, or none at all.
///
/// Dictionaries of different values are compared on the host, wherever they lie: the common one has each value once, in the
/// order in which they come first, and the keys are made anew.
///
/// # Errors
/// The dictionaries are `ordered`, and do not have their common values in one order.
pub(super) fn unified(
    chunks: &[DeviceArray],
    ordered: bool,
    stream: &Stream,
) -> Result<Option<Vec<DeviceArray>>> {
    let dictionaries: Vec<&DeviceArray> = chunks.iter().filter_map(DeviceArray::dictionary).collect();
    let Some((first, others)) = dictionaries.split_first() else { return Ok(None) };
    if dictionaries.len() != chunks.len() {
        return Err(Error::bad_data("an array of dictionary keys has no dictionary"));
    }
    if others.iter().all(|other| same_buffers(first, other)) {
        return Ok(None);
    }
    let views = dictionaries.iter().map(|one| HostArray::new(one, stream)).collect::<Result<Vec<_>>>()?;
    let keys = views.iter().map(Keys::of).collect::<Result<Vec<_>>>()?;
    let same = |other: &Vec<Vec<u8>>| Some(other) == keys.first();
    if keys.iter().all(same) {
        let shared = |chunk: &DeviceArray| chunk.clone().with_dictionary((*first).clone());
        return Ok(Some(chunks.iter().map(shared).collect()));
    }
    let mut common = Builder::new(first.data_type());
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    let mut places = Vec::with_capacity(keys.len());
    for (view, keys) in views.iter().zip(&keys) {
        let mut own = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            let next = known.len();
            let place = *known.entry(key).or_insert(next);
            if place == next {
                common.append(view, i, 1)?;
            }
            own.push(place);
        }
        places.push(own);
    }
    if ordered && !places.iter().all(|places| places.is_sorted()) {
        return Err(Error::unsupported(
            "its dictionaries are ordered, and put together their values would be in another order: decode it first \
             (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust), or leave the batches apart",
        ));
    }
    let common = common.finish(stream)?;
    let anew = chunks.iter().zip(&places).map(|(chunk, places)| rekeyed(chunk, places, &common, stream));
    anew.collect::<Result<_>>().map(Some)
}

/// The chunk over another dictionary, in which its own one's values stand at `places`.
fn rekeyed(
    chunk: &DeviceArray,
    places: &[usize],
    dictionary: &DeviceArray,
    stream: &Stream,
) -> Result<DeviceArray> {
    let keys = remapped(&HostArray::keys(chunk, stream)?, 0, chunk.len(), places)?;
    let filled = |to: &mut [u8]| {
        to.copy_from_slice(&keys);
        Ok(())
    };
    let keys = match keys.len() {
        0 => None,
        n => Some(stream.memory().alloc_with(stream, n, filled)?.freeze(stream)?),
    };
    let validity = match chunk.validity() {
        Some(bits) if !chunk.is_empty() => Some(from_first_bit(stream, bits, chunk.offset(), chunk.len())?),
        _ => None,
    };
    let (data_type, nulls) = (chunk.data_type().clone(), chunk.null_count());
    let buffers = vec![validity, keys];
    DeviceArray::try_new(data_type, chunk.len(), 0, nulls, buffers, Vec::new(), Some(dictionary.clone()))
}
