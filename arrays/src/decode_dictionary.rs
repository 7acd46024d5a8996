//! Decodes dictionary-encoded columns on any device.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Metadata};
use crossdock_memory::{Buffer, Error, Result, Stream};

use crate::DeviceArray;
use crate::cast::cast;
use crate::nulls::stream_on;
use crate::take::{can_take, take};

/// Returns the field of a decoded column. `has_nulls` is true if one of the column's dictionaries
/// contains a null. The field has the metadata of the column and the metadata of the dictionary's
/// values. If both contain the same key, the column's pair is used.
///
/// # Errors
/// Returns an error if the field's type is not a dictionary.
pub fn decoded_field(field: &Field, has_nulls: bool) -> Result<Field> {
    let DataType::Dictionary(_, values) = field.data_type() else {
        return Err(not_a_dictionary(field.data_type()));
    };
    let of_values = crate::metadata::of_dictionary_values(field.metadata());
    let of_column = field.metadata().iter().filter(|(key, _)| *key != crate::metadata::DICTIONARY_VALUES);
    let all = of_values.iter().chain(of_column).map(|(key, value)| (key.clone(), value.clone()));
    let metadata: Metadata = all.collect();
    let nullable = field.is_nullable() || has_nulls;
    Ok(Field::new(field.name(), values.as_ref().clone(), nullable).with_metadata(metadata))
}

/// Replaces each key by its value, on the array's device. Blocks until all keys are checked. If the
/// values are dictionary-encoded themselves, they stay encoded.
///
/// # Errors
/// Returns an error if the array's type is not a dictionary, if a key is out of range, or if rows
/// of the value type cannot be taken (see [`can_take`](crate::take::can_take)).
pub fn decode_dictionary(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (DataType::Dictionary(keys, data_type), Some(values)) = (array.data_type(), array.dictionary())
    else {
        return Err(not_a_dictionary(array.data_type()));
    };
    if array.is_empty() {
        return DeviceArray::empty(data_type);
    }
    let stream = &stream_on(array.device(), stream)?;
    let keys = keys_of(array, keys)?;
    let out_of_range = |at| {
        Error::bad_data(format!(
            "the dictionary key at index {at} is out of range: the dictionary has {} values",
            values.len()
        ))
    };
    if let (DataType::Dictionary(inner, _), Some(dictionary)) = (values.data_type(), values.dictionary()) {
        let codes = take(stream, &keys_of(values, inner)?, &keys)?.map_err(out_of_range)?;
        let (len, offset, nulls) = (codes.len(), codes.offset(), codes.null_count());
        let buffers = codes.buffers().to_vec();
        let (of, dictionary) = (values.data_type().clone(), dictionary.clone());
        return DeviceArray::try_new(of, len, offset, nulls, buffers, Vec::new(), Some(dictionary));
    }
    let plain = plain_type(data_type);
    if !can_take(&plain) {
        return Err(Error::unsupported(format!(
            "cannot decode a dictionary with values of type {data_type}"
        )));
    }
    let mut values = values.clone();
    values.resolve_sizes(stream)?;
    let taken = take(stream, &to_plain(&values, stream)?, &keys)?.map_err(out_of_range)?;
    from_plain(&taken, data_type, stream)
}

fn not_a_dictionary(data_type: &DataType) -> Error {
    Error::invalid_argument(format!("expected a dictionary, got {data_type}"))
}

/// Returns the keys of a dictionary-encoded array as an array of integers.
fn keys_of(array: &DeviceArray, keys: &DataType) -> Result<DeviceArray> {
    let (len, offset, nulls) = (array.len(), array.offset(), array.null_count());
    DeviceArray::try_new(keys.clone(), len, offset, nulls, array.buffers().to_vec(), Vec::new(), None)
}

/// The field of a list whose elements are bytes.
fn bytes() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Returns the equivalent type whose rows can be taken: strings and binary values become lists of
/// bytes, and offsets become 32 bits wide.
fn plain_type(data_type: &DataType) -> DataType {
    let element = |field: &FieldRef| with_type(field, plain_type(field.data_type()));
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
            DataType::List(bytes())
        }
        DataType::FixedSizeBinary(size) => DataType::FixedSizeList(bytes(), *size),
        DataType::List(field) | DataType::LargeList(field) => DataType::List(element(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(element(field), *size),
        DataType::Map(field, sorted) => DataType::Map(element(field), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(element).collect()),
        other => other.clone(),
    }
}

/// Converts an array to its [`plain_type`].
fn to_plain(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (data_type, plain) = (array.data_type(), plain_type(array.data_type()));
    if *data_type == plain {
        return Ok(array.clone());
    }
    if array.is_empty() {
        return DeviceArray::empty(&plain);
    }
    let validity = array.buffers().first().cloned().flatten();
    let (mut buffers, mut children) = (vec![validity], Vec::new());
    match data_type {
        DataType::Utf8 | DataType::Binary => {
            buffers.push(buffer(array, 1));
            children.push(to_bytes(buffer(array, 2))?);
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            buffers.push(offsets_as(array, &DataType::Int64, &DataType::Int32, stream)?);
            children.push(to_bytes(buffer(array, 2))?);
        }
        DataType::FixedSizeBinary(_) => children.push(to_bytes(buffer(array, 1))?),
        DataType::LargeList(_) => {
            buffers.push(offsets_as(array, &DataType::Int64, &DataType::Int32, stream)?);
            children.push(plain_child(array, stream)?);
        }
        DataType::List(_) | DataType::Map(..) => {
            buffers.push(buffer(array, 1));
            children.push(plain_child(array, stream)?);
        }
        _ => {
            let all = array.children().iter().map(|child| to_plain(child, stream));
            children = all.collect::<Result<_>>()?;
        }
    }
    DeviceArray::try_new(plain, array.len(), array.offset(), array.null_count(), buffers, children, None)
}

fn plain_child(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    to_plain(array.children().first().ok_or_else(no_child)?, stream)
}

/// Converts an array of [`plain_type`] back to `data_type`.
fn from_plain(array: &DeviceArray, data_type: &DataType, stream: &Stream) -> Result<DeviceArray> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    if array.is_empty() {
        return DeviceArray::empty(data_type);
    }
    let validity = array.buffers().first().cloned().flatten();
    let (mut buffers, mut children) = (vec![validity], Vec::new());
    let child = || array.children().first().ok_or_else(no_child);
    match data_type {
        DataType::Utf8 | DataType::Binary => buffers.extend([buffer(array, 1), from_bytes(child()?)?]),
        DataType::LargeUtf8 | DataType::LargeBinary => {
            let offsets = offsets_as(array, &DataType::Int32, &DataType::Int64, stream)?;
            buffers.extend([offsets, from_bytes(child()?)?]);
        }
        DataType::FixedSizeBinary(_) => buffers.push(from_bytes(child()?)?),
        DataType::LargeList(field) => {
            buffers.push(offsets_as(array, &DataType::Int32, &DataType::Int64, stream)?);
            children.push(from_plain(child()?, field.data_type(), stream)?);
        }
        DataType::List(field) | DataType::Map(field, _) => {
            buffers.push(buffer(array, 1));
            children.push(from_plain(child()?, field.data_type(), stream)?);
        }
        DataType::FixedSizeList(field, _) => children.push(from_plain(child()?, field.data_type(), stream)?),
        DataType::Struct(fields) => {
            let all = array.children().iter().zip(fields);
            let all = all.map(|(child, field)| from_plain(child, field.data_type(), stream));
            children = all.collect::<Result<_>>()?;
        }
        other => return Err(Error::internal(format!("values of {other} have no plain type"))),
    }
    let data_type = data_type.clone();
    DeviceArray::try_new(data_type, array.len(), array.offset(), array.null_count(), buffers, children, None)
}

fn no_child() -> Error {
    Error::internal("lists without elements")
}

fn buffer(array: &DeviceArray, i: usize) -> Option<Buffer> {
    array.buffers().get(i).cloned().flatten()
}

/// Converts a buffer to an array of bytes.
fn to_bytes(buffer: Option<Buffer>) -> Result<DeviceArray> {
    let len = match &buffer {
        Some(buffer) => buffer.len().ok_or_else(|| Error::internal("the length of a buffer is unknown"))?,
        None => 0,
    };
    DeviceArray::try_new(DataType::UInt8, len, 0, Some(0), vec![None, buffer], Vec::new(), None)
}

/// Returns the buffer of an array of bytes, beginning at the array's first byte.
fn from_bytes(array: &DeviceArray) -> Result<Option<Buffer>> {
    buffer(array, 1).map(|buffer| buffer.slice(array.offset(), array.len())).transpose()
}

/// Converts an array's offsets to another width. Also converts the offsets before the array's first
/// value, so that the array's offset stays the same.
fn offsets_as(
    array: &DeviceArray,
    from: &DataType,
    to: &DataType,
    stream: &Stream,
) -> Result<Option<Buffer>> {
    let len = array.offset() + array.len() + 1;
    let buffers = vec![None, buffer(array, 1)];
    let offsets = DeviceArray::try_new(from.clone(), len, 0, Some(0), buffers, Vec::new(), None)?;
    let (cast, changed) = cast(&offsets, to, stream)?;
    match changed {
        None => Ok(buffer(&cast, 1)),
        Some(_) => Err(Error::unsupported(
            "cannot decode a dictionary with more elements or bytes than 32-bit offsets can address",
        )),
    }
}
