//! The dictionary that several arrays have in common.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use crossdock_memory::{Buffer, Error, Result, Stream};

use crate::{DeviceArray, DeviceBatch, equal};

/// That of all chunks; `None` where they have none.
///
/// # Errors
/// They have different ones.
pub(super) fn common(chunks: &[DeviceArray], stream: &Stream) -> Result<Option<DeviceArray>> {
    let Some(first) = chunks.first().and_then(DeviceArray::dictionary) else { return Ok(None) };
    for other in chunks.iter().skip(1).filter_map(DeviceArray::dictionary) {
        if !is_same(first, other) && !are_equal(first, other, stream)? {
            return Err(Error::unsupported(
                "its batches have dictionaries of different values: decode it first, or leave the batches apart",
            ));
        }
    }
    Ok(Some(first.clone()))
}

/// Whether both are the same memory.
fn is_same(one: &DeviceArray, other: &DeviceArray) -> bool {
    let place = |slot: &Option<Buffer>| slot.as_ref().map(|buffer| (buffer.address(), buffer.len()));
    let alike = |one: &DeviceArray, other: &DeviceArray| {
        (one.len(), one.offset()) == (other.len(), other.offset())
            && one.buffers().iter().map(place).eq(other.buffers().iter().map(place))
    };
    alike(one, other)
        && one.children().is_empty()
        && other.children().is_empty()
        && one.dictionary().is_none()
        && other.dictionary().is_none()
}

/// Whether both hold the same values in the same order.
fn are_equal(one: &DeviceArray, other: &DeviceArray, stream: &Stream) -> Result<bool> {
    let schema = Arc::new(Schema::new(vec![Field::new("values", one.data_type().clone(), true)]));
    let batch = |array: &DeviceArray| DeviceBatch::try_new(schema.clone(), array.len(), vec![array.clone()]);
    if one.len() != other.len() {
        return Ok(false);
    }
    equal(&batch(one)?, &batch(other)?, stream)
}
