//! Converts numbers to another type and finds the values that this type cannot represent.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_kernels::{Checks, NumberType};
use crossdock_memory::{Result, Stream};

use crate::nulls::stream_on;
use crate::take::byte_aligned_bits;
use crate::{DeviceArray, DeviceBatch, first_difference};

/// Whether [`cast`] supports a type.
pub fn can_cast(data_type: &DataType) -> bool {
    number_type(data_type).is_some()
}

/// Converts `array` to type `to`. Also returns a description of the first value that `to` cannot
/// represent exactly, if there is one. Blocks until the host has compared all values.
///
/// # Errors
///
/// Returns an error if [`can_cast`] is false for the type of `array` or for `to`.
pub fn cast(array: &DeviceArray, to: &DataType, stream: &Stream) -> Result<(DeviceArray, Option<String>)> {
    let stream = stream_on(array.device(), stream)?;
    let converted = as_type(array, to, &stream)?;
    let back = as_type(&converted, array.data_type(), &stream)?;
    // A conversion gives all NaNs the same bits. To avoid a difference between NaNs, the result is
    // compared with an original that was converted in the same way.
    let original = match array.data_type().is_floating() {
        true => as_type(array, array.data_type(), &stream)?,
        false => array.clone(),
    };
    let mut difference = difference(&original, &back, &stream)?;
    if difference.is_none() && array.data_type().is_integer() && to.is_integer() {
        // The values are compared as floats, because a comparison in the original type could miss a
        // difference. A conversion may turn the sign bit of an integer into a value bit, and the
        // conversion back would restore the same integer.
        let floats = |array: &DeviceArray| as_type(array, &DataType::Float64, &stream);
        difference = self::difference(&floats(array)?, &floats(&converted)?, &stream)?;
    }
    Ok((converted, difference.map(|row| row.split(" and ").next().unwrap_or_default().to_owned())))
}

fn difference(left: &DeviceArray, right: &DeviceArray, stream: &Stream) -> Result<Option<String>> {
    let schema = Arc::new(Schema::new(vec![Field::new("", left.data_type().clone(), true)]));
    let batch = |array: &DeviceArray| DeviceBatch::try_new(schema.clone(), array.len(), vec![array.clone()]);
    first_difference(&batch(left)?, &batch(right)?, stream)
}

fn as_type(array: &DeviceArray, to: &DataType, stream: &Stream) -> Result<DeviceArray> {
    let unknown = |of: &DataType| crate::Error::internal(format!("{of} is not a number type"));
    let from_type = number_type(array.data_type()).ok_or_else(|| unknown(array.data_type()))?;
    let to_type = number_type(to).ok_or_else(|| unknown(to))?;
    let (len, offset) = (array.len(), array.offset());
    let values = array.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0);
    let values = match values {
        None => None,
        Some(values) => {
            let mut converted = stream.memory().alloc(stream, len.saturating_mul(to_type.width_bytes()))?;
            let mut checks = Checks::new();
            checks.cast(
                values,
                offset * from_type.width_bytes(),
                from_type,
                len,
                &mut converted,
                0,
                to_type,
            )?;
            checks.run(stream)?;
            Some(converted.freeze(stream)?)
        }
    };
    let validity = match array.validity() {
        Some(bits) if len > 0 => Some(byte_aligned_bits(stream, bits, offset, len)?),
        _ => None,
    };
    let nulls = if validity.is_none() { Some(0) } else { array.null_count() };
    DeviceArray::try_new(to.clone(), len, 0, nulls, vec![validity, values], Vec::new(), None)
}

pub(super) fn number_type(data_type: &DataType) -> Option<NumberType> {
    Some(match data_type {
        DataType::Int8 => NumberType::Int8,
        DataType::Int16 => NumberType::Int16,
        DataType::Int32 => NumberType::Int32,
        DataType::Int64 => NumberType::Int64,
        DataType::UInt8 => NumberType::UInt8,
        DataType::UInt16 => NumberType::UInt16,
        DataType::UInt32 => NumberType::UInt32,
        DataType::UInt64 => NumberType::UInt64,
        DataType::Float16 => NumberType::Float16,
        DataType::Float32 => NumberType::Float32,
        DataType::Float64 => NumberType::Float64,
        _ => return None,
    })
}
