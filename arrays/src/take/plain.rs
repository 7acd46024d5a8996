//! Converts arrays to equivalent types whose rows can be taken, and back.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use crossdock_kernels::{Checks, Offsets};
use crossdock_memory::{Buffer, Error, Result, Stream};

use crate::DeviceArray;

/// The field of a list whose elements are bytes.
fn bytes() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt8, false))
}

fn with_type(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Returns the equivalent type whose rows can be taken: strings and binary values become lists of
/// bytes, and offsets become 32 bits wide.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
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

/// Converts an array to the equivalent type of lists of bytes instead of strings and binary values,
/// with offsets of 32 bits. Other buffers are shared.
///
/// # Errors
/// If offsets exceed 32 bits, or if the length of a buffer is unknown.
pub fn to_plain(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
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
            buffers.push(offsets_as(array, 8, 4, stream)?);
            children.push(to_bytes(buffer(array, 2))?);
        }
        DataType::FixedSizeBinary(_) => children.push(to_bytes(buffer(array, 1))?),
        DataType::LargeList(_) => {
            buffers.push(offsets_as(array, 8, 4, stream)?);
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

/// Converts an array back to `data_type`, whose values [`to_plain`] converts to the array's type.
///
/// # Errors
/// If `data_type` is another type, or if the length of a buffer is unknown.
pub fn from_plain(array: &DeviceArray, data_type: &DataType, stream: &Stream) -> Result<DeviceArray> {
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
            let offsets = offsets_as(array, 4, 8, stream)?;
            buffers.extend([offsets, from_bytes(child()?)?]);
        }
        DataType::FixedSizeBinary(_) => buffers.push(from_bytes(child()?)?),
        DataType::LargeList(field) => {
            buffers.push(offsets_as(array, 4, 8, stream)?);
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
fn offsets_as(array: &DeviceArray, width: usize, to_width: usize, stream: &Stream) -> Result<Option<Buffer>> {
    let Some(offsets) = buffer(array, 1) else { return Ok(None) };
    let all = Offsets { buffer: &offsets, width_bytes: width, first: 0, len: array.offset() + array.len() };
    let mut to = stream.memory().alloc(stream, all.len.saturating_add(1).saturating_mul(to_width))?;
    let mut checks = Checks::new();
    let cell = checks.convert_offsets(all, 0, &mut to, 0, to_width)?;
    match checks.run(stream)?.first_wrong(cell) {
        None => to.freeze(stream).map(Some),
        Some(_) => Err(Error::unsupported(
            "cannot take rows of an array with more elements or bytes than 32-bit offsets can address",
        )),
    }
}
