//! Logical equality: the same values, however they are laid out.

use crossdock_memory::{Device, Result, Stream};

use crate::DeviceBatch;
use crate::host::{HostArray, Value};

/// Whether two batches hold the same values under the same schema, wherever they lie and however they are laid out.
/// Floating-point values are the same if their bits are. Copies to the host what does not lie there.
pub fn equal(left: &DeviceBatch, right: &DeviceBatch, stream: &Stream) -> Result<bool> {
    first_difference(left, right, stream).map(|difference| difference.is_none())
}

/// Where two batches differ first, in words; `None` where they do not. See [`equal`].
pub fn first_difference(left: &DeviceBatch, right: &DeviceBatch, stream: &Stream) -> Result<Option<String>> {
    // arrow-rs's equality of fields leaves out whether a dictionary is ordered.
    let ordered = |batch: &DeviceBatch| {
        let fields = batch.schema().flattened_fields();
        fields.iter().map(|field| field.dict_is_ordered()).collect::<Vec<_>>()
    };
    if left.schema() != right.schema() || ordered(left) != ordered(right) {
        return Ok(Some(format!("the schemas differ: {:?} and {:?}", left.schema(), right.schema())));
    }
    if left.metadata() != right.metadata() {
        return Ok(Some(format!(
            "the batches' own metadata: {:?} and {:?}",
            left.metadata(),
            right.metadata()
        )));
    }
    if left.len() != right.len() {
        return Ok(Some(format!("{} rows and {} rows", left.len(), right.len())));
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
