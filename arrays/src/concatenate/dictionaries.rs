//! Replaces the dictionaries of several arrays by one common dictionary.

use std::collections::HashMap;

use crossdock_memory::{Error, Result, Stream};

use crate::DeviceArray;
use crate::by_value::{Builder, HostArray, ValueIndex, remap_keys, same_buffers};
use crate::take::byte_aligned_bits;

/// Returns the chunks with one common dictionary; `None` if the chunks have no dictionary or
/// already share their dictionary.
///
/// Dictionaries that do not share memory are compared on the host, whatever their device. The
/// common dictionary contains each value once, in the order of first occurrence, and the keys are
/// rewritten.
///
/// # Errors
/// Returns an error if the dictionaries are `ordered` and the common dictionary would change the
/// order of their values.
pub(super) fn unify(
    chunks: &[DeviceArray],
    ordered: bool,
    stream: &Stream,
) -> Result<Option<Vec<DeviceArray>>> {
    let dictionaries: Vec<&DeviceArray> = chunks.iter().filter_map(DeviceArray::dictionary).collect();
    let Some((first, others)) = dictionaries.split_first() else { return Ok(None) };
    if dictionaries.len() != chunks.len() {
        return Err(Error::bad_data("a dictionary array has no dictionary"));
    }
    if others.iter().all(|other| same_buffers(first, other)) {
        return Ok(None);
    }
    let views = dictionaries
        .iter()
        .map(|dictionary| HostArray::new(dictionary, stream))
        .collect::<Result<Vec<_>>>()?;
    let keys = views.iter().map(ValueIndex::encode).collect::<Result<Vec<_>>>()?;
    let same = |other: &Vec<Vec<u8>>| Some(other) == keys.first();
    if keys.iter().all(same) {
        let shared = |chunk: &DeviceArray| chunk.clone().with_dictionary((*first).clone());
        return Ok(Some(chunks.iter().map(shared).collect()));
    }
    let mut common = Builder::new(first.data_type());
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    let mut positions = Vec::with_capacity(keys.len());
    for (view, keys) in views.iter().zip(&keys) {
        let mut chunk_positions = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            let next = known.len();
            let position = *known.entry(key).or_insert(next);
            if position == next {
                common.append(view, i, 1)?;
            }
            chunk_positions.push(position);
        }
        positions.push(chunk_positions);
    }
    if ordered && !positions.iter().all(|positions| positions.is_sorted()) {
        return Err(Error::unsupported(
            "the dictionaries are ordered, and a common dictionary would change the order of their values: decode the column \
             first (Table.decode_dictionary in Python, Table::decode_dictionaries in Rust), or keep the batches separate",
        ));
    }
    let common = common.finish(stream)?;
    let chunks_with_common = chunks
        .iter()
        .zip(&positions)
        .map(|(chunk, positions)| with_common_dictionary(chunk, positions, &common, stream));
    chunks_with_common.collect::<Result<_>>().map(Some)
}

/// Rewrites the keys of a chunk for the common dictionary. Value `i` of the chunk's dictionary has
/// the index `positions[i]` in the common dictionary.
fn with_common_dictionary(
    chunk: &DeviceArray,
    positions: &[usize],
    dictionary: &DeviceArray,
    stream: &Stream,
) -> Result<DeviceArray> {
    let keys = remap_keys(&HostArray::keys(chunk, stream)?, 0, chunk.len(), positions)?;
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(&keys);
        Ok(())
    };
    let keys = match keys.len() {
        0 => None,
        n => Some(stream.memory().alloc_with(stream, n, fill)?.freeze(stream)?),
    };
    let validity = match chunk.validity() {
        Some(bits) if !chunk.is_empty() => {
            Some(byte_aligned_bits(stream, bits, chunk.offset(), chunk.len())?)
        }
        _ => None,
    };
    let (data_type, nulls) = (chunk.data_type().clone(), chunk.null_count());
    let buffers = vec![validity, keys];
    DeviceArray::try_new(data_type, chunk.len(), 0, nulls, buffers, Vec::new(), Some(dictionary.clone()))
}
