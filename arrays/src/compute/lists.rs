//! Converts lists to lists of fixed size, and to elements and offsets.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use crossdock_kernels::{Checks, NumberType, Offsets, Source};
use crossdock_memory::{Error, Result, Stream};

use crate::DeviceArray;
use crate::nulls::stream_on;
use crate::numbers::{self, Numbers};
use crate::take::sequence;

/// Converts lists that all have the same length to lists of fixed size. The result shares the
/// elements. Blocks until the lengths are checked.
///
/// # Errors
/// Returns an error that names the first row of another length, if a list is null, or if the type
/// is no list with offsets.
pub fn lists_of_fixed_size(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let stream = &stream_on(array.device(), stream)?;
    let (field, width, of): (&FieldRef, _, _) = match array.data_type() {
        DataType::FixedSizeList(..) => return Ok(array.clone()),
        DataType::List(field) => (field, 4, NumberType::Int32),
        DataType::LargeList(field) => (field, 8, NumberType::Int64),
        other => {
            return Err(Error::unsupported(format!(
                "expected lists with offsets, got {}",
                crate::type_name(other)
            )));
        }
    };
    let fixed = |size: i32| DataType::FixedSizeList(Arc::clone(field), size);
    if array.is_empty() {
        return DeviceArray::empty(&fixed(0));
    }
    if array.count_nulls(stream)? > 0 {
        return Err(Error::invalid_argument(
            "the rows of a tensor have one length, and a list is null: fill or drop the null rows",
        ));
    }
    let missing = || Error::internal("lists without offsets or elements");
    let offsets = array.buffers().get(1).and_then(Option::as_ref).ok_or_else(missing)?;
    let elements = array.children().first().ok_or_else(missing)?;
    let (len, at) = (array.len(), array.offset() * width);
    let first_two = numbers::read(&[Numbers { source: offsets, at, n: 2, width }], stream)?;
    let [begin, end] = *first_two.as_slice() else { return Err(missing()) };
    let size = end.checked_sub(begin).and_then(|size| i32::try_from(size).ok()).filter(|size| *size >= 0);
    let begin = usize::try_from(begin).ok();
    let (Some(begin), Some(size)) = (begin, size) else {
        return Err(Error::bad_data(format!("the offsets of the first list are {first_two:?}")).with_row(0));
    };
    let n = size.unsigned_abs() as usize;
    // The distances of the offsets from the first one are compared with multiples of the length.
    let expected = sequence(stream, len + 1, n, width)?;
    let mut rebased = stream.memory().alloc(stream, (len + 1) * width)?;
    let source = Offsets { buffer: offsets, width_bytes: width, first: array.offset(), len };
    let mut checks = Checks::new();
    checks.convert_offsets(source, begin as i64, &mut rebased, 0, width)?;
    checks.run(stream)?;
    let rebased = rebased.freeze(stream)?;
    let list = |buffer| Source { buffer: Some(buffer), at: 0, len: len + 1 };
    let mut checks = Checks::new();
    let cell = checks.equal_numbers(list(&rebased), list(&expected), of)?;
    if let Some(at) = checks.run(stream)?.first_wrong(cell) {
        let row = at.saturating_sub(1);
        let at = (array.offset() + row as usize) * width;
        let both = numbers::read(&[Numbers { source: offsets, at, n: 2, width }], stream)?;
        let got = both.last().zip(both.first()).map_or(0, |(end, begin)| end - begin);
        return Err(Error::invalid_argument(format!(
            "the rows of a tensor have one length: the first list has {size} elements, and this one has {got}; pad the \
             rows, or export the elements and the lengths separately"
        ))
        .with_row(row));
    }
    if len.checked_mul(n).and_then(|total| total.checked_add(begin)).is_none_or(|end| end > elements.len()) {
        return Err(Error::bad_data(format!("the lists end after their {} elements", elements.len())));
    }
    let elements = elements.slice(begin, len * n)?;
    DeviceArray::try_new(fixed(size), len, 0, Some(0), vec![None], vec![elements], None)
}

/// The elements of lists and the offsets of each list in these elements. The first offset is 0, and
/// there is one more offset than lists. The elements are shared.
///
/// # Errors
/// Returns an error if a list is null, if the offsets are malformed, or if the type is no list with
/// offsets.
pub fn elements_and_offsets(array: &DeviceArray, stream: &Stream) -> Result<(DeviceArray, DeviceArray)> {
    let stream = &stream_on(array.device(), stream)?;
    let (width, of) = match array.data_type() {
        DataType::List(_) => (4, DataType::Int32),
        DataType::LargeList(_) => (8, DataType::Int64),
        other => {
            return Err(Error::unsupported(format!(
                "expected lists with offsets, got {}",
                crate::type_name(other)
            )));
        }
    };
    let missing = || Error::internal("lists without offsets or elements");
    let elements = array.children().first().ok_or_else(missing)?;
    let len = array.len();
    let offsets = |buffer| {
        DeviceArray::try_new(of.clone(), len + 1, 0, Some(0), vec![None, Some(buffer)], Vec::new(), None)
    };
    let Some(Some(source)) = array.buffers().get(1).filter(|_| len > 0) else {
        return Ok((elements.slice(0, 0)?, offsets(sequence(stream, 1, 0, width)?)?));
    };
    if array.count_nulls(stream)? > 0 {
        return Err(Error::invalid_argument("a null list has no offsets: fill or drop the null rows"));
    }
    let at = |i: usize| Numbers { source, at: (array.offset() + i) * width, n: 1, width };
    let ends = numbers::read(&[at(0), at(len)], stream)?;
    let [begin, end] = *ends.as_slice() else { return Err(missing()) };
    let mut rebased = stream.memory().alloc(stream, (len + 1) * width)?;
    let lists = Offsets { buffer: source, width_bytes: width, first: array.offset(), len };
    let mut checks = Checks::new();
    let wrong = checks.offsets(lists, elements.len() as u64)?;
    checks.convert_offsets(lists, begin, &mut rebased, 0, width)?;
    if let Some(row) = checks.run(stream)?.first_wrong(wrong) {
        return Err(Error::bad_data(format!(
            "an offset is less than the one before or greater than the number of elements, {}",
            elements.len()
        ))
        .with_row(row));
    }
    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let (begin, end) = range.ok_or_else(|| Error::bad_data(format!("the offsets are {begin} to {end}")))?;
    Ok((elements.slice(begin, end.saturating_sub(begin))?, offsets(rebased.freeze(stream)?)?))
}
