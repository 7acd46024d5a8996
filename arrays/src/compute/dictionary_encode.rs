//! Encodes columns as dictionaries.

use std::hash::{BuildHasher, RandomState};

use arrow_schema::DataType;
use crossdock_kernels::{ByteValues, Checks, Jobs, Numbers, Offsets, SelectedRows, Source, slots_for};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::texts;
use crate::DeviceArray;
use crate::nulls::stream_on;
use crate::take::{Slot, Slots, byte_aligned_bits, take_in_range};

/// Bytes of a code, of a row and of a slot.
const BYTES: usize = 4;

/// Replaces the values by `int32` keys of a dictionary, which has each value once, in the order of
/// their first rows. A null has a null key. Floats are equal if their bits are equal. A dictionary
/// is returned as it is. Blocks until the number of distinct values is known.
///
/// # Errors
/// Returns an error if the type is nested, if there are more than 2^30 rows, or if offsets are
/// malformed.
pub fn dictionary_encode(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let stream = &stream_on(array.device(), stream)?;
    let (data_type, len) = (array.data_type(), array.len());
    if matches!(data_type, DataType::Dictionary(..)) {
        return Ok(array.clone());
    }
    let of = DataType::Dictionary(Box::new(DataType::Int32), Box::new(data_type.clone()));
    if len == 0 {
        return DeviceArray::empty(&of);
    }
    let mut sized = array.clone();
    sized.resolve_sizes(stream)?;
    if matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
        // The values of the dictionary stay views; the offsets serve only to compare them.
        sized = texts::to_offsets(&sized, stream)?;
    }
    let slots;
    let values = match (sized.data_type(), Slot::of(sized.data_type())) {
        (DataType::FixedSizeBinary(size), _) => {
            let size = usize::try_from(*size).unwrap_or(0);
            let buffer = sized.buffers().get(1).and_then(Option::as_ref);
            let data = Source { buffer, at: sized.offset() * size, len: len * size };
            ByteValues::FixedSize { size, len, data }
        }
        (_, Some(slot)) => {
            slots = Slots::of(stream, &sized, slot)?;
            let Source { buffer, at, .. } = slots.source();
            let size = slots.width;
            ByteValues::FixedSize { size, len, data: Source { buffer, at, len: len * size } }
        }
        _ => offset_values(&sized)?,
    };
    let (rows, codes) = distinct(values, &sized, stream)?;
    let dictionary = match &rows {
        Some((rows, n)) => take_in_range(stream, array, rows, *n, BYTES)?,
        None => DeviceArray::empty(data_type)?,
    };
    let dictionary = super::with_validity(&dictionary, None)?;
    let validity = array.validity_bits();
    let bits = validity.map(|(bits, first)| byte_aligned_bits(stream, &bits, first, len)).transpose()?;
    let nulls = if bits.is_none() { Some(0) } else { array.null_count() };
    DeviceArray::try_new(of, len, 0, nulls, vec![bits, Some(codes)], Vec::new(), Some(dictionary))
}

fn offset_values(array: &DeviceArray) -> Result<ByteValues<'_>> {
    let width_bytes = match array.data_type() {
        DataType::Utf8 | DataType::Binary => 4,
        DataType::LargeUtf8 | DataType::LargeBinary => 8,
        other => {
            return Err(Error::unsupported(format!(
                "values of type {} have no dictionary",
                crate::type_name(other)
            )));
        }
    };
    let buffer = |i: usize| array.buffers().get(i).and_then(Option::as_ref);
    let offsets = buffer(1).ok_or_else(|| Error::internal("values without offsets"))?;
    let offsets = Offsets { buffer: offsets, width_bytes, first: array.offset(), len: array.len() };
    let data = Source { buffer: buffer(2), at: 0, len: buffer(2).and_then(Buffer::len).unwrap_or(0) };
    Ok(ByteValues::Offsets(offsets, data))
}

/// The rows of the distinct values, `None` if there are none, and the codes of all rows.
#[allow(clippy::type_complexity)]
fn distinct(
    values: ByteValues<'_>,
    array: &DeviceArray,
    stream: &Stream,
) -> Result<(Option<(Buffer, usize)>, Buffer)> {
    let (len, memory) = (array.len(), stream.memory());
    let table_bytes = slots_for(len)? * BYTES;
    let mut table = memory.alloc(stream, table_bytes)?;
    stream.fill(&mut table, 0, table_bytes, 0xff)?;
    let mut slots = memory.alloc(stream, len * BYTES)?;
    let validity = array.validity_bits();
    let valid = validity.as_ref().map(|(bits, first)| (bits, *first));
    let mut checks = Checks::new();
    let cell = checks.find_equal(values, valid, RandomState::new().hash_one(0), &mut table, &mut slots)?;
    if let Some(at) = checks.run(stream)?.first_wrong(cell) {
        return Err(Error::bad_data(format!("value {at} is outside of its data buffer")).with_row(at));
    }
    let (table, slots) = (table.freeze(stream)?, slots.freeze(stream)?);
    let mut marks = memory.alloc(stream, len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.mark_first(&table, &slots, len, &mut marks)?;
    jobs.launch(stream)?;
    let marks = marks.freeze(stream)?;
    let selected = SelectedRows { bits: &marks, len };
    let first_rows = selected.count(stream)?;
    let n = first_rows.n;
    let mut rows = memory.alloc(stream, n * BYTES)?;
    let mut codes = memory.alloc(stream, len * BYTES)?;
    if n == 0 {
        stream.fill(&mut codes, 0, len * BYTES, 0)?;
        return Ok((None, codes.freeze(stream)?));
    }
    let mut jobs = Jobs::new();
    jobs.place_bits(selected, &first_rows, &mut rows, 0, BYTES)?;
    jobs.launch(stream)?;
    let rows = rows.freeze(stream)?;
    let mut numbered = memory.alloc(stream, table_bytes)?;
    let mut jobs = Jobs::new();
    jobs.number_slots(&rows, n, &slots, len, &mut numbered)?;
    jobs.launch(stream)?;
    let numbered = numbered.freeze(stream)?;
    // Null rows have a slot that is out of range, for which the code is 0.
    let mut checks = Checks::new();
    let at = Numbers { buffer: &slots, at: 0, len, width_bytes: BYTES };
    let source = Source { buffer: Some(&numbered), at: 0, len: table_bytes / BYTES };
    checks.take(at, valid, source, &mut codes, 0, BYTES)?;
    checks.run(stream)?;
    Ok((Some((rows, n)), codes.freeze(stream)?))
}
