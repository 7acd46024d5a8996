//! Casts columns to other types.

use arrow_schema::DataType;
use crossdock_kernels::{Accept, Checks, ComparedType, Jobs, NumberType, Rescale, Source};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::convert_numbers::number_type;
use super::fill_null::fill_bytes;
use super::{
    CastMode, batch_of, decimal_scale, host_casts, is_decimal, lists_of_fixed_size, numbers_of, texts, units,
};
use crate::nulls::stream_on;
use crate::print::cells;
use crate::take::{Slot, Slots, expand_runs, from_plain, to_plain};
use crate::{DeviceArray, decode_dictionary, type_name};

/// Converts the values of an array to another type, on the array's device. Texts, and decimals to
/// other types than floats, are converted on the host. Nulls stay null.
///
/// # Errors
/// Returns an error if there is no such conversion or, in [`CastMode::Safe`], if a value cannot be
/// represented; the error names its row.
pub fn cast_values(
    array: &DeviceArray,
    to: &DataType,
    mode: CastMode,
    stream: &Stream,
) -> Result<DeviceArray> {
    let stream = &stream_on(array.device(), stream)?;
    let from = array.data_type();
    if from == to {
        return Ok(array.clone());
    }
    if let DataType::Dictionary(..) = from {
        return cast_values(&decode_dictionary(array, stream)?, to, mode, stream);
    }
    if let DataType::RunEndEncoded(..) = from {
        return cast_values(&expanded(array, stream)?, to, mode, stream);
    }
    let unsupported = || {
        Error::unsupported(format!(
            "there is no cast from {} to {} (pyarrow.compute may have one: to_pyarrow)",
            type_name(from),
            type_name(to)
        ))
    };
    if *from == DataType::Null {
        return all_null(to, array.len(), stream)?.ok_or_else(unsupported);
    }
    if texts::is_text(from) && texts::is_text(to) {
        return texts::convert(array, to, stream);
    }
    if let Some(steps) = units::conversion(from, to) {
        let mut converted = array.clone();
        for (i, (factor, rescale)) in steps.iter().enumerate() {
            let is_last = i + 1 == steps.len();
            let to = if is_last { to.clone() } else { DataType::Int64 };
            converted = rescaled(&converted, &to, *factor, *rescale, mode, stream)?;
        }
        return Ok(converted);
    }
    if let (Some(element), Some(to_element)) = (nested_element(from), nested_element(to)) {
        return cast_list(array, element, to, to_element, mode, stream)?.ok_or_else(unsupported);
    }
    if host_casts::exists(from, to) {
        return host_casts::convert(array, to, mode, stream);
    }
    match (from, to) {
        (DataType::Boolean, _) if number_type(to).is_some() => {
            let slots = Slots::of(stream, array, Slot::Bit)?;
            let ones = numbers_of(array, DataType::UInt8, buffer_of(slots.source())?, stream)?;
            cast_values(&ones, to, mode, stream)
        }
        (_, DataType::Boolean) if number_type(from).is_some() => to_booleans(array, stream),
        _ => {
            let stored = units::stored_as(from);
            if let Some(stored) = &stored
                && to == stored
            {
                return retyped(array, to);
            }
            if units::stored_as(to).is_some_and(|stored| stored == *from) {
                return retyped(array, to);
            }
            if let (Some(_), true) = (&stored, number_type(to).is_some()) {
                return Err(Error::unsupported(format!(
                    "there is no cast from {} to {}: cast it to {} first",
                    type_name(from),
                    type_name(to),
                    if stored == Some(DataType::Int32) { "int32" } else { "int64" }
                )));
            }
            if is_decimal(from) && to.is_floating() {
                return cast_values(&decimal_to_float(array, stream)?, to, mode, stream);
            }
            match (number_type(from), number_type(to)) {
                (Some(from), Some(to_type)) => cast_numbers(array, from, to, to_type, mode, stream),
                _ => Err(unsupported()),
            }
        }
    }
}

/// The values of a run-end encoded array, one for each row.
fn expanded(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let [ends, values] = array.children() else {
        return Err(Error::internal("a run-end encoded array without run ends"));
    };
    if array.is_empty() {
        return DeviceArray::empty(values.data_type());
    }
    let mut sized = values.clone();
    sized.resolve_sizes(stream)?;
    let plain = to_plain(&sized, stream)?;
    let rows = expand_runs(stream, &plain, ends, array.offset() as u64, array.len())?;
    let rows = rows.map_err(|at| Error::bad_data(format!("the run end at index {at} is invalid")))?;
    from_plain(&rows, values.data_type(), stream)
}

/// The array with another type that has the same buffers.
fn retyped(array: &DeviceArray, to: &DataType) -> Result<DeviceArray> {
    let (len, offset, nulls) = (array.len(), array.offset(), array.null_count());
    DeviceArray::try_new(to.clone(), len, offset, nulls, array.buffers().to_vec(), Vec::new(), None)
}

fn buffer_of(source: Source<'_>) -> Result<Option<Buffer>> {
    source.buffer.map(|buffer| buffer.slice(source.at, source.len)).transpose()
}

/// The values of an array of fixed width.
fn source(array: &DeviceArray, width: usize) -> Source<'_> {
    let buffer = array.buffers().get(1).and_then(Option::as_ref);
    Source { buffer, at: array.offset() * width, len: array.len() }
}

fn all_null(to: &DataType, len: usize, stream: &Stream) -> Result<Option<DeviceArray>> {
    let Some(slot) = Slot::of(to).filter(|_| !matches!(to, DataType::Utf8View | DataType::BinaryView)) else {
        return Ok(None);
    };
    if len == 0 {
        return DeviceArray::empty(to).map(Some);
    }
    let zeros = |bytes: usize| {
        let mut to = stream.memory().alloc(stream, bytes)?;
        stream.fill(&mut to, 0, bytes, 0)?;
        to.freeze(stream)
    };
    let values = match slot {
        Slot::Bit => zeros(len.div_ceil(8))?,
        Slot::Bytes(width) => zeros(len.saturating_mul(width))?,
    };
    let buffers = vec![Some(zeros(len.div_ceil(8))?), Some(values)];
    DeviceArray::try_new(to.clone(), len, 0, Some(len), buffers, Vec::new(), None).map(Some)
}

fn cast_numbers(
    array: &DeviceArray,
    from: NumberType,
    to: &DataType,
    to_type: NumberType,
    mode: CastMode,
    stream: &Stream,
) -> Result<DeviceArray> {
    // A null may have any bits, which must not be reported.
    let filled = match mode {
        CastMode::Safe => fill_bytes(array, &[0; 8], stream)?,
        CastMode::Unsafe => array.clone(),
    };
    let values = source(&filled, from.width_bytes());
    let (converted, wrong) = convert(values, from, to_type, stream)?;
    if mode == CastMode::Safe {
        let is_to_float = to.is_floating();
        let is_exact_by_type = array.data_type().is_floating() && is_to_float;
        let lost = match wrong {
            Some(at) => Some(at),
            None if is_exact_by_type || array.data_type().is_integer() && !is_to_float => None,
            None => inexact(values, from, &converted, to_type, stream)?,
        };
        if let Some(row) = lost {
            let value = shown(&filled, row, stream)?;
            return Err(Error::invalid_argument(format!(
                "the value {value} cannot be represented as {}: change it, or pass safe=False",
                type_name(to)
            ))
            .with_row(row));
        }
    }
    numbers_of(array, to.clone(), Some(converted), stream)
}

/// Describes a value for a message.
fn shown(array: &DeviceArray, row: u64, stream: &Stream) -> Result<String> {
    let one = array.slice(usize::try_from(row).unwrap_or(0), 1)?;
    let cells = cells(&batch_of(&one)?, 1, stream)?;
    Ok(cells.into_iter().flatten().next().unwrap_or_default())
}

/// Converts numbers. Also returns the first number that the type cannot represent, apart from
/// rounding.
fn convert(
    from: Source<'_>,
    of: NumberType,
    to: NumberType,
    stream: &Stream,
) -> Result<(Buffer, Option<u64>)> {
    let mut converted = stream.memory().alloc(stream, from.len.saturating_mul(to.width_bytes()))?;
    let mut checks = Checks::new();
    let Some(values) = from.buffer.filter(|_| from.len > 0) else {
        return Ok((converted.freeze(stream)?, None));
    };
    let cell = checks.cast(values, from.at, of, from.len, &mut converted, 0, to)?;
    let wrong = checks.run(stream)?.first_wrong(cell);
    Ok((converted.freeze(stream)?, wrong))
}

/// The first number that differs from the number that its conversion is converted back to.
fn inexact(
    from: Source<'_>,
    of: NumberType,
    converted: &Buffer,
    to: NumberType,
    stream: &Stream,
) -> Result<Option<u64>> {
    let there = Source { buffer: Some(converted), at: 0, len: from.len };
    let (back, overflow) = convert(there, to, of, stream)?;
    let mut checks = Checks::new();
    let cell = checks.equal_numbers(from, Source { buffer: Some(&back), at: 0, len: from.len }, of)?;
    let different = checks.run(stream)?.first_wrong(cell);
    Ok(different.into_iter().chain(overflow).min())
}

fn to_booleans(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let of = number_type(array.data_type()).ok_or_else(|| Error::internal("no number"))?;
    let mut bits = stream.memory().alloc(stream, array.len().div_ceil(8))?;
    let not_zero = Accept::LESS | Accept::GREATER | Accept::UNORDERED;
    let mut jobs = Jobs::new();
    let values = source(array, of.width_bytes());
    jobs.compare_numbers(values, ComparedType::Number(of), [0; 4], not_zero, &mut bits, 0)?;
    jobs.launch(stream)?;
    let bits = bits.freeze(stream)?;
    numbers_of(array, DataType::Boolean, Some(bits), stream)
}

fn rescaled(
    array: &DeviceArray,
    to: &DataType,
    factor: i64,
    rescale: Rescale,
    mode: CastMode,
    stream: &Stream,
) -> Result<DeviceArray> {
    let width = |of: &DataType| of.primitive_width().unwrap_or(8);
    let (from_width, to_width) = (width(array.data_type()), width(to));
    if factor == 1 && from_width == to_width {
        return retyped(array, to);
    }
    let validity = array.validity_bits();
    let valid = validity.as_ref().map(|(bits, first)| (bits, *first));
    let mut converted = stream.memory().alloc(stream, array.len().saturating_mul(to_width))?;
    let mut checks = Checks::new();
    let from = source(array, from_width);
    let cell = checks.rescale(from, from_width, valid, factor, rescale, &mut converted, 0, to_width)?;
    let wrong = checks.run(stream)?.first_wrong(cell).filter(|_| mode == CastMode::Safe);
    if let Some(row) = wrong {
        let value = shown(array, row, stream)?;
        return Err(Error::invalid_argument(format!(
            "the value {value} cannot be represented as {}: change it, or pass safe=False",
            type_name(to)
        ))
        .with_row(row));
    }
    let converted = converted.freeze(stream)?;
    numbers_of(array, to.clone(), Some(converted), stream)
}

fn decimal_to_float(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let scale = decimal_scale(array.data_type())
        .ok_or_else(|| Error::internal(format!("{} is no decimal", crate::type_name(array.data_type()))))?;
    let width = array.data_type().primitive_width().unwrap_or(16);
    let factor = 10f64.powi(i32::from(scale).abs());
    let mut converted = stream.memory().alloc(stream, array.len().saturating_mul(8))?;
    let mut jobs = Jobs::new();
    jobs.decimal_to_float(source(array, width), width, factor, scale < 0, &mut converted, 0)?;
    jobs.launch(stream)?;
    let converted = converted.freeze(stream)?;
    numbers_of(array, DataType::Float64, Some(converted), stream)
}

/// The type of the elements of a list with offsets or of a fixed size.
fn nested_element(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(field.data_type())
        }
        _ => None,
    }
}

/// Casts the elements of lists, and lists of equal lengths to lists of fixed size. `None` if there
/// is no such cast.
fn cast_list(
    array: &DeviceArray,
    element: &DataType,
    to: &DataType,
    to_element: &DataType,
    mode: CastMode,
    stream: &Stream,
) -> Result<Option<DeviceArray>> {
    let mut lists = array.clone();
    match (array.data_type(), to) {
        (DataType::List(_), DataType::List(_)) | (DataType::LargeList(_), DataType::LargeList(_)) => {}
        (DataType::FixedSizeList(_, a), DataType::FixedSizeList(_, b)) if a == b => {}
        (DataType::List(_) | DataType::LargeList(_), DataType::FixedSizeList(_, size)) => {
            if array.is_empty() {
                return DeviceArray::empty(to).map(Some);
            }
            lists = lists_of_fixed_size(array, stream)?;
            if let DataType::FixedSizeList(_, got) = lists.data_type()
                && got != size
            {
                return Err(Error::invalid_argument(format!(
                    "the lists have {got} elements, expected {size} for {}",
                    type_name(to)
                )));
            }
        }
        _ => return Ok(None),
    }
    let child = lists.children().first().ok_or_else(|| Error::internal("lists without elements"))?;
    let child = if element == to_element {
        child.clone()
    } else {
        cast_values(child, to_element, mode, stream)
            .map_err(|error| error.context("the elements of the lists"))?
    };
    let (len, offset, nulls) = (lists.len(), lists.offset(), lists.null_count());
    DeviceArray::try_new(to.clone(), len, offset, nulls, lists.buffers().to_vec(), vec![child], None)
        .map(Some)
}
