//! Converts between the types of strings and bytes of any length.

use arrow_schema::DataType;
use crossdock_kernels::{Checks, Offsets};
use crossdock_memory::{Buffer, Device, Error, Result, Stream};

use super::batch_of;
use crate::host::{HostArray, Value};
use crate::{DeviceArray, Level, validate};

/// Whether the type has strings or bytes of any length.
pub(super) fn is_text(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

pub(super) fn is_utf8(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Bytes of an offset; `None` for views.
fn offset_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Utf8 | DataType::Binary => Some(4),
        DataType::LargeUtf8 | DataType::LargeBinary => Some(8),
        _ => None,
    }
}

/// Converts an array of one of the types to another one. Views are converted on the host.
///
/// # Errors
/// Returns an error if bytes are no UTF-8, or if offsets of 32 bits cannot represent the result.
pub(super) fn convert(array: &DeviceArray, to: &DataType, stream: &Stream) -> Result<DeviceArray> {
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    if array.is_empty() {
        return DeviceArray::empty(to);
    }
    let converted = match (offset_width(array.data_type()), offset_width(to)) {
        (Some(from), Some(width)) => with_offsets(&array, from, to, width, stream)?,
        (None, None) => retyped(&array, to, array.buffers().to_vec())?,
        _ => on_host(&array, to, stream)?,
    };
    if is_utf8(to) && !is_utf8(array.data_type()) {
        validate(&batch_of(&converted)?, Level::Full, stream)?;
    }
    Ok(converted)
}

/// Converts views to offsets, with which their bytes can be read without their data buffers.
pub(super) fn to_offsets(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    convert(array, &DataType::LargeBinary, stream)
}

fn retyped(array: &DeviceArray, to: &DataType, buffers: Vec<Option<Buffer>>) -> Result<DeviceArray> {
    let (len, offset, nulls) = (array.len(), array.offset(), array.null_count());
    DeviceArray::try_new(to.clone(), len, offset, nulls, buffers, Vec::new(), None)
}

/// Moves an array to a device.
pub(super) fn moved(array: &DeviceArray, device: Device, stream: &Stream) -> Result<DeviceArray> {
    let column = batch_of(array)?.move_to(stream, device)?.into_columns().pop();
    column.ok_or_else(|| Error::internal("a moved batch without columns"))
}

/// Converts the offsets, and shares the data.
fn with_offsets(
    array: &DeviceArray,
    width: usize,
    to: &DataType,
    to_width: usize,
    stream: &Stream,
) -> Result<DeviceArray> {
    if width == to_width {
        return retyped(array, to, array.buffers().to_vec());
    }
    let mut buffers = array.buffers().to_vec();
    let [_, Some(offsets), _] = buffers.as_mut_slice() else {
        return Err(Error::internal("values without offsets"));
    };
    // The offsets before the first value are converted too, so that the array's offset stays.
    let all = Offsets { buffer: offsets, width_bytes: width, first: 0, len: array.offset() + array.len() };
    let mut converted = stream.memory().alloc(stream, (all.len + 1).saturating_mul(to_width))?;
    let mut checks = Checks::new();
    let cell = checks.convert_offsets(all, 0, &mut converted, 0, to_width)?;
    if checks.run(stream)?.first_wrong(cell).is_some() {
        return Err(too_long(to));
    }
    *offsets = converted.freeze(stream)?;
    retyped(array, to, buffers)
}

fn too_long(to: &DataType) -> Error {
    Error::unsupported(format!(
        "the values have more bytes than the offsets of {to} can address: split the column"
    ))
}

/// Converts between views and offsets on the host.
fn on_host(array: &DeviceArray, to: &DataType, stream: &Stream) -> Result<DeviceArray> {
    let on_host = moved(array, Device::CPU, stream)?;
    let values = HostArray::new(&on_host, stream)?;
    let (mut data, mut views, mut offsets) = (Vec::new(), Vec::new(), vec![0usize]);
    let mut validity = vec![0u8; array.len().div_ceil(8)];
    for row in 0..array.len() {
        let value: &[u8] = match values.value(row) {
            Value::Bytes(_, bytes) => bytes,
            Value::Null => &[],
            _ => return Err(Error::bad_data(format!("value {row} is malformed")).with_row(row as u64)),
        };
        if !matches!(values.value(row), Value::Null)
            && let Some(byte) = validity.get_mut(row / 8)
        {
            *byte |= 1 << (row % 8);
        }
        let len = u32::try_from(value.len()).map_err(|_| too_long(to))?;
        views.extend_from_slice(&len.to_le_bytes());
        if value.len() <= 12 {
            views.extend_from_slice(value);
            views.resize(views.len() + 12 - value.len(), 0);
        } else {
            let at = u32::try_from(data.len()).ok().filter(|at| i32::try_from(*at).is_ok());
            views.extend_from_slice(value.get(..4).unwrap_or_default());
            views.extend_from_slice(&[0; 4]);
            views.extend_from_slice(&at.unwrap_or(u32::MAX).to_le_bytes());
        }
        // Inline values are part of the data only if there are offsets.
        if value.len() > 12 || offset_width(to).is_some() {
            data.extend_from_slice(value);
        }
        offsets.push(data.len());
    }
    let max = if offset_width(to) == Some(8) { usize::MAX } else { i32::MAX as usize };
    if data.len() > max {
        return Err(too_long(to));
    }
    let host = &stream.memory().default_stream(Device::CPU)?;
    let first = match offset_width(to) {
        Some(width) => offsets.iter().flat_map(|at| at.to_le_bytes().into_iter().take(width)).collect(),
        None => views,
    };
    let bits = if array.validity_bits().is_some() { Some(put(&validity, host)?) } else { None };
    let nulls = if bits.is_none() { Some(0) } else { array.null_count() };
    let buffers = vec![bits, Some(put(&first, host)?), Some(put(&data, host)?)];
    let built = DeviceArray::try_new(to.clone(), array.len(), 0, nulls, buffers, Vec::new(), None)?;
    moved(&built, array.device(), stream)
}

/// Allocates host memory with these bytes.
pub(super) fn put(bytes: &[u8], host: &Stream) -> Result<Buffer> {
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(bytes);
        Ok(())
    };
    host.memory().alloc_with(host, bytes.len(), fill)?.freeze(host)
}
