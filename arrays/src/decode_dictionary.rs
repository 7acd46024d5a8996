//! Dictionary-encoded columns as their values, on any device.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Metadata};
use crossdock_memory::{Buffer, Error, Result, Stream};

use crate::DeviceArray;
use crate::cast::cast;
use crate::nulls::stream_on;
use crate::take::{take, takes};

/// The field of a dictionary-encoded column's values; `has_nulls`: whether one of its dictionaries has a null. Its metadata are
/// those of the column, and what the values have besides.
///
/// # Errors
/// The field is of another type.
pub fn decoded_field(field: &Field, has_nulls: bool) -> Result<Field> {
    let DataType::Dictionary(_, values) = field.data_type() else { return Err(is_none(field.data_type())) };
    let of_values = crate::metadata::of_dictionary_values(field.metadata());
    let own = field.metadata().iter().filter(|(key, _)| *key != crate::metadata::DICTIONARY_VALUES);
    let all = of_values.iter().chain(own).map(|(key, value)| (key.clone(), value.clone()));
    let metadata: Metadata = all.collect();
    let nullable = field.is_nullable() || has_nulls;
    Ok(Field::new(field.name(), values.as_ref().clone(), nullable).with_metadata(metadata))
}

/// The values that the keys of a dictionary-encoded array stand for, on its device. Blocks until it is known that every key has
/// one. Values that are dictionary-encoded themselves stay so.
///
/// # Errors
/// The array is of another type, a key points at no value, or the values are of a type whose rows are not taken.
pub fn decode_dictionary(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (DataType::Dictionary(keys, data_type), Some(values)) = (array.data_type(), array.dictionary())
    else {
        return Err(is_none(array.data_type()));
    };
    if array.is_empty() {
        return DeviceArray::empty(data_type);
    }
    let stream = &stream_on(array.device(), stream)?;
    let keys = keys_of(array, keys)?;
    let wrong = |at| {
        Error::bad_data(format!("key number {at} points at none of the dictionary's {} values", values.len()))
    };
    if let (DataType::Dictionary(inner, _), Some(dictionary)) = (values.data_type(), values.dictionary()) {
        let codes = take(stream, &keys_of(values, inner)?, &keys)?.map_err(wrong)?;
        let (len, offset, nulls) = (codes.len(), codes.offset(), codes.null_count());
        let buffers = codes.buffers().to_vec();
        let (of, dictionary) = (values.data_type().clone(), dictionary.clone());
        return DeviceArray::try_new(of, len, offset, nulls, buffers, Vec::new(), Some(dictionary));
    }
    let plain = plain_type(data_type);
    if !takes(&plain) {
        return Err(Error::unsupported(format!(
            "a dictionary whose values are of type {data_type} is not decoded"
        )));
    }
    let mut values = values.clone();
    values.resolve_sizes(stream)?;
    let taken = take(stream, &plain_of(&values, stream)?, &keys)?.map_err(wrong)?;
    restored(&taken, data_type, stream)
}

fn is_none(data_type: &DataType) -> Error {
    Error::invalid_argument(format!("expected a dictionary, got {data_type}"))
}

/// The keys of a dictionary-encoded array as integers.
fn keys_of(array: &DeviceArray, keys: &DataType) -> Result<DeviceArray> {
    let (len, offset, nulls) = (array.len(), array.offset(), array.null_count());
    DeviceArray::try_new(keys.clone(), len, offset, nulls, array.buffers().to_vec(), Vec::new(), None)
}

/// Bytes as the elements of lists.
fn bytes() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// A type that lies as this one does, and whose rows are taken where one is: texts and bytes are lists of bytes, and offsets have
/// 32 bits.
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

/// An array as one of [`plain_type`].
fn plain_of(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
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
            children.push(bytes_of(buffer(array, 2))?);
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            buffers.push(offsets_as(array, &DataType::Int64, &DataType::Int32, stream)?);
            children.push(bytes_of(buffer(array, 2))?);
        }
        DataType::FixedSizeBinary(_) => children.push(bytes_of(buffer(array, 1))?),
        DataType::LargeList(_) => {
            buffers.push(offsets_as(array, &DataType::Int64, &DataType::Int32, stream)?);
            children.push(plain_child(array, stream)?);
        }
        DataType::List(_) | DataType::Map(..) => {
            buffers.push(buffer(array, 1));
            children.push(plain_child(array, stream)?);
        }
        _ => {
            let all = array.children().iter().map(|child| plain_of(child, stream));
            children = all.collect::<Result<_>>()?;
        }
    }
    DeviceArray::try_new(plain, array.len(), array.offset(), array.null_count(), buffers, children, None)
}

fn plain_child(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    plain_of(array.children().first().ok_or_else(no_child)?, stream)
}

/// An array of [`plain_type`] as one of `data_type` again.
fn restored(array: &DeviceArray, data_type: &DataType, stream: &Stream) -> Result<DeviceArray> {
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
        DataType::Utf8 | DataType::Binary => buffers.extend([buffer(array, 1), bytes_in(child()?)?]),
        DataType::LargeUtf8 | DataType::LargeBinary => {
            let offsets = offsets_as(array, &DataType::Int32, &DataType::Int64, stream)?;
            buffers.extend([offsets, bytes_in(child()?)?]);
        }
        DataType::FixedSizeBinary(_) => buffers.push(bytes_in(child()?)?),
        DataType::LargeList(field) => {
            buffers.push(offsets_as(array, &DataType::Int32, &DataType::Int64, stream)?);
            children.push(restored(child()?, field.data_type(), stream)?);
        }
        DataType::List(field) | DataType::Map(field, _) => {
            buffers.push(buffer(array, 1));
            children.push(restored(child()?, field.data_type(), stream)?);
        }
        DataType::FixedSizeList(field, _) => children.push(restored(child()?, field.data_type(), stream)?),
        DataType::Struct(fields) => {
            let all = array.children().iter().zip(fields);
            let all = all.map(|(child, field)| restored(child, field.data_type(), stream));
            children = all.collect::<Result<_>>()?;
        }
        other => return Err(Error::internal(format!("values of {other} were taken as others"))),
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

/// All bytes of a buffer as an array.
fn bytes_of(buffer: Option<Buffer>) -> Result<DeviceArray> {
    let len = match &buffer {
        Some(buffer) => {
            buffer.len().ok_or_else(|| Error::internal("a buffer of a length that is not known"))?
        }
        None => 0,
    };
    DeviceArray::try_new(DataType::UInt8, len, 0, Some(0), vec![None, buffer], Vec::new(), None)
}

/// The bytes of an array of them, from its first on.
fn bytes_in(array: &DeviceArray) -> Result<Option<Buffer>> {
    buffer(array, 1).map(|buffer| buffer.slice(array.offset(), array.len())).transpose()
}

/// An array's offsets in another width. Those before its first value go along, so that its offset stays.
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
            "a dictionary with more elements or bytes together than offsets of 32 bits reach to is not decoded",
        )),
    }
}
