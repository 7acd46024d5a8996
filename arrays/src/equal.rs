//! Compares batches by value, whatever their layout and device.

use crossdock_memory::{Device, Result, Stream};

use crate::DeviceBatch;
use crate::host::{HostArray, Value};

/// Whether two batches have the same schema and the same values. The layouts and devices may
/// differ. Floating-point values are equal if their bits are equal. Buffers on a device are copied
/// to the host.
pub fn equal(left: &DeviceBatch, right: &DeviceBatch, stream: &Stream) -> Result<bool> {
    first_difference(left, right, stream).map(|difference| difference.is_none())
}

/// Describes the first difference between two batches; `None` if they are equal. See [`equal`].
pub fn first_difference(left: &DeviceBatch, right: &DeviceBatch, stream: &Stream) -> Result<Option<String>> {
    // arrow-rs ignores `dict_is_ordered` when it compares fields, so it is compared separately.
    let ordered = |batch: &DeviceBatch| {
        let fields = batch.schema().flattened_fields();
        fields.iter().map(|field| field.dict_is_ordered()).collect::<Vec<_>>()
    };
    if left.schema() != right.schema() || ordered(left) != ordered(right) {
        return Ok(Some(format!("the schemas differ: {:?} and {:?}", left.schema(), right.schema())));
    }
    if left.metadata() != right.metadata() {
        return Ok(Some(format!(
            "the metadata of the batches differ: {:?} and {:?}",
            left.metadata(),
            right.metadata()
        )));
    }
    if left.len() != right.len() {
        return Ok(Some(format!("the numbers of rows differ: {} and {}", left.len(), right.len())));
    }
    let (mut left, mut right) = (left.move_to(stream, Device::CPU)?, right.move_to(stream, Device::CPU)?);
    left.resolve_sizes(stream)?;
    right.resolve_sizes(stream)?;
    for ((field, left), right) in left.schema().fields().iter().zip(left.columns()).zip(right.columns()) {
        let (left, right) = (HostArray::new(left, stream)?, HostArray::new(right, stream)?);
        if let (Some(left), Some(right)) = (left.plain_bytes(), right.plain_bytes())
            && left == right
        {
            continue;
        }
        if let Some(row) = (0..left.len()).find(|row| !same(&left.value(*row), &right.value(*row))) {
            let (left, right) = (crate::print::cell(&left, row), crate::print::cell(&right, row));
            return Ok(Some(format!("{}[{row}]: {left} and {right}", field.name())));
        }
    }
    Ok(None)
}

fn same(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Bytes(_, left), Value::Bytes(_, right)) => left == right,
        (Value::List(a, left), Value::List(b, right)) => {
            left.len() == right.len()
                && left.clone().zip(right.clone()).all(|(i, j)| same(&a.value(i), &b.value(j)))
        }
        (Value::Struct(a, i), Value::Struct(b, j)) => {
            a.children().len() == b.children().len()
                && a.children().iter().zip(b.children()).all(|(a, b)| same(&a.value(*i), &b.value(*j)))
        }
        (Value::Union(a, left, i), Value::Union(b, right, j)) => {
            left == right && same(&a.value(*i), &b.value(*j))
        }
        _ => false,
    }
}
