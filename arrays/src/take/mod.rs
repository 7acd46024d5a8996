//! Takes values by index and expands runs, on any device.

mod nested;
mod others;
mod plain;

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Jobs, Numbers, Source, pack_bytes, unpack_bits};
use crossdock_memory::{Buffer, Result, Stream};

use crate::DeviceArray;
use nested::Rows;
pub(crate) use nested::sequence;
pub use nested::{Gathered, InvalidLists, can_take, gather, row_width};
pub(crate) use others::take_in_range;
pub(crate) use plain::plain_type;
pub use plain::{from_plain, to_plain};

/// The width that the values of a type have in the first buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// One bit per value.
    Bit,
    /// Each value has this number of bytes.
    Bytes(usize),
}

impl Slot {
    /// Returns the width of a type's values; `None` if they are nested or vary in length.
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Boolean => Some(Self::Bit),
            DataType::Utf8View | DataType::BinaryView => Some(Self::Bytes(16)),
            other => other.primitive_width().map(Self::Bytes),
        }
    }
}

/// A validity bitmap, in which a set bit means a valid value, and the index of the bit of the first
/// value.
pub type Validity = (Buffer, usize);

/// Values of whole bytes. If the values of an array have one bit each, they are unpacked to one
/// byte each.
pub struct Slots {
    buffer: Option<Buffer>,
    at: usize,
    /// Bytes per value.
    pub width: usize,
    /// The number of values.
    pub len: usize,
}

impl Slots {
    /// The values of `array`, whose type has the width `slot`.
    pub fn of(stream: &Stream, array: &DeviceArray, slot: Slot) -> Result<Self> {
        let (offset, len) = (array.offset(), array.len());
        let buffer = array.buffers().get(1).and_then(Option::as_ref).filter(|_| len > 0);
        Ok(match slot {
            Slot::Bytes(width) => Self { buffer: buffer.cloned(), at: offset * width, width, len },
            Slot::Bit => {
                let bytes = buffer.map(|bits| bytes_of_bits(stream, bits, offset, len)).transpose()?;
                Self { buffer: bytes, at: 0, width: 1, len }
            }
        })
    }

    /// The validity of an array's values, in one byte per value; `None` if all are valid.
    pub fn of_validity(stream: &Stream, array: &DeviceArray) -> Result<Option<Self>> {
        let Some((bits, first)) = array.validity_bits() else { return Ok(None) };
        let bytes = bytes_of_bits(stream, &bits, first, array.len())?;
        Ok(Some(Self { buffer: Some(bytes), at: 0, width: 1, len: array.len() }))
    }

    /// The validity of `len` values that are all valid, in one byte per value.
    pub fn all_valid(stream: &Stream, len: usize) -> Result<Self> {
        let mut ones = stream.memory().alloc(stream, len)?;
        stream.fill(&mut ones, 0, len, 1)?;
        Ok(Self { buffer: Some(ones.freeze(stream)?), at: 0, width: 1, len })
    }

    /// The indices of `len` rows.
    fn of_rows(stream: &Stream, len: usize) -> Result<Self> {
        let width = row_width(len);
        let buffer = nested::sequence(stream, len, 1, width)?;
        Ok(Self { buffer: Some(buffer), at: 0, width, len })
    }

    /// The values as the argument of a kernel.
    pub fn source(&self) -> Source<'_> {
        Source { buffer: self.buffer.as_ref(), at: self.at, len: self.len }
    }
}

/// The values that were taken, or the index of the first invalid code or run end.
pub type Taken = std::result::Result<DeviceArray, u64>;

/// Takes the values at the given indices (`codes`, integers of any width). A result is null if its
/// code or its value is null. Blocks until all codes are checked.
///
/// # Errors
/// Returns an error if rows of the type of `values` cannot be taken (see [`can_take`]).
pub fn take(stream: &Stream, values: &DeviceArray, codes: &DeviceArray) -> Result<Taken> {
    let len = codes.len();
    let Some(indices) = numbers(codes) else { return DeviceArray::empty(values.data_type()).map(Ok) };
    let valid = codes.validity_bits();
    if let Some(at) = first_invalid_signed(stream, values, codes, indices)? {
        return Ok(Err(at));
    }
    let select = |slots: &Slots| {
        let mut to = stream.memory().alloc(stream, len.saturating_mul(slots.width))?;
        let mut checks = Checks::new();
        let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
        let cell = checks.take(indices, valid, slots.source(), &mut to, 0, slots.width)?;
        match checks.run(stream)?.first_wrong(cell) {
            None => to.freeze(stream).map(Ok),
            Some(at) => Ok(Err(at)),
        }
    };
    select_values(stream, values, len, valid.clone(), &select)
}

/// Finds the first code of a signed type that is negative or too large. Kernels read codes as
/// unsigned integers, for which a negative code could be a valid index.
fn first_invalid_signed(
    stream: &Stream,
    values: &DeviceArray,
    codes: &DeviceArray,
    indices: Numbers<'_>,
) -> Result<Option<u64>> {
    if !codes.data_type().is_signed_integer() {
        return Ok(None);
    }
    let of = IntType { width_bytes: indices.width_bytes, signed: true };
    let valid = codes.validity_bits();
    let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
    let mut checks = Checks::new();
    let cell = checks.indices(indices.buffer, of, codes.offset(), codes.len(), valid, values.len() as u64)?;
    Ok(checks.run(stream)?.first_wrong(cell))
}

/// Expands runs: for each of the positions `first..first + len`, takes the value of the first run
/// whose end is greater than the position. Run ends are ascending integers of any width. Blocks
/// until all run ends are checked.
///
/// # Errors
/// Returns an error if rows of the type of `values` cannot be taken (see [`can_take`]).
pub fn expand_runs(
    stream: &Stream,
    values: &DeviceArray,
    ends: &DeviceArray,
    first: u64,
    len: usize,
) -> Result<Taken> {
    let select = |slots: &Slots| {
        let mut to = stream.memory().alloc(stream, len.saturating_mul(slots.width))?;
        let invalid = match numbers(ends) {
            Some(ends) => {
                let mut checks = Checks::new();
                let cell = checks.expand_runs(ends, first, slots.source(), &mut to, 0, len, slots.width)?;
                checks.run(stream)?.first_wrong(cell)
            }
            None => (len > 0).then_some(0),
        };
        match invalid {
            None => to.freeze(stream).map(Ok),
            Some(at) => Ok(Err(at)),
        }
    };
    select_values(stream, values, len, None, &select)
}

/// A function that selects the values to take, in order. If there is an invalid code or run end,
/// the function returns the index of the first one instead.
type Select<'a> = dyn Fn(&Slots) -> Result<std::result::Result<Buffer, u64>> + 'a;

/// Selects values of any type. A value of the result is valid if it is valid in `outer` and in
/// `values`.
fn select_values(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    select: &Select<'_>,
) -> Result<Taken> {
    let values = &with_known_sizes(stream, values)?;
    let data_type = values.data_type();
    let Some(slot) = Slot::of(data_type) else { return select_rows(stream, values, len, outer, select) };
    let mut selected = match select(&Slots::of(stream, values, slot)?)? {
        Ok(selected) => selected,
        Err(index) => return Ok(Err(index)),
    };
    if slot == Slot::Bit {
        selected = bits_of_bytes(stream, &selected, len)?;
    }
    let validity = match select_validity(stream, values, len, outer, select)? {
        Ok(validity) => validity,
        Err(index) => return Ok(Err(index)),
    };
    let null_count = if validity.is_none() { Some(0) } else { None };
    let bits = byte_aligned_validity(stream, validity.as_ref(), len)?;
    let variadic = values.layout().variadic;
    let data = values.buffers().iter().skip(2).filter(|_| variadic).cloned();
    let buffers = [bits, Some(selected)].into_iter().chain(data).collect();
    DeviceArray::try_new(data_type.clone(), len, 0, null_count, buffers, Vec::new(), None).map(Ok)
}

/// Returns the array with known buffer lengths. Resolves the lengths of the data buffers of view
/// arrays if they are unknown.
fn with_known_sizes(stream: &Stream, array: &DeviceArray) -> Result<DeviceArray> {
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    Ok(array)
}

/// Selects nested values: selects the indices of the rows, then takes these rows.
fn select_rows(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    select: &Select<'_>,
) -> Result<Taken> {
    nested::check_can_take(values.data_type())?;
    let indices = Slots::of_rows(stream, values.len())?;
    let rows = match select(&indices)? {
        Ok(rows) => rows,
        Err(index) => return Ok(Err(index)),
    };
    let rows = Rows { buffer: &rows, len, width: indices.width, valid: outer.as_ref(), are_in_range: false };
    nested::take_rows(stream, values, rows).map(Ok)
}

/// Selects the validity of the values, and merges it with `outer`.
fn select_validity(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    select: &Select<'_>,
) -> Result<std::result::Result<Option<Validity>, u64>> {
    let inner = match Slots::of_validity(stream, values)? {
        Some(valid) => match select(&valid)? {
            Ok(bytes) => Some((bits_of_bytes(stream, &bytes, len)?, 0)),
            Err(index) => return Ok(Err(index)),
        },
        None => None,
    };
    merge_validity(stream, outer, inner, len).map(Ok)
}

/// Returns the validity bitmap as a buffer that begins at bit 0.
fn byte_aligned_validity(stream: &Stream, validity: Option<&Validity>, len: usize) -> Result<Option<Buffer>> {
    validity.map(|(bits, first)| byte_aligned_bits(stream, bits, *first, len)).transpose()
}

/// The values of an array of integers; `None` if there are none.
pub fn numbers(array: &DeviceArray) -> Option<Numbers<'_>> {
    let width_bytes = array.data_type().primitive_width()?;
    let buffer = array.buffers().get(1)?.as_ref().filter(|_| !array.is_empty())?;
    Some(Numbers { buffer, at: array.offset() * width_bytes, len: array.len(), width_bytes })
}

impl DeviceArray {
    /// The validity bitmap and the index of its first bit; `None` if the array is known to have no
    /// nulls.
    pub fn validity_bits(&self) -> Option<Validity> {
        if self.null_count() == Some(0) || !self.layout().has_validity || self.is_empty() {
            return None;
        }
        Some((self.buffers().first()?.clone()?, self.offset()))
    }
}

/// Merges two validity bitmaps of `len` values: a value is valid if it is valid in both bitmaps.
pub fn merge_validity(
    stream: &Stream,
    a: Option<Validity>,
    b: Option<Validity>,
    len: usize,
) -> Result<Option<Validity>> {
    let (Some(left), Some(right)) = (&a, &b) else { return Ok(a.or(b)) };
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.merge_bits((&left.0, left.1), (&right.0, right.1), len, &mut to, 0)?;
    jobs.launch(stream)?;
    Ok(Some((to.freeze(stream)?, 0)))
}

/// Returns bits `first..first + len` as a buffer that begins at bit 0. If `first` is the first bit
/// of a byte, the result shares memory with `bits`, else the bits are copied.
pub fn byte_aligned_bits(stream: &Stream, bits: &Buffer, first: usize, len: usize) -> Result<Buffer> {
    if first.is_multiple_of(8) {
        return bits.slice(first / 8, len.div_ceil(8));
    }
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.shift_bits(bits, first, len, &mut to, 0)?;
    jobs.launch(stream)?;
    to.freeze(stream)
}

/// Unpacks each bit to a byte.
fn bytes_of_bits(stream: &Stream, bits: &Buffer, first: usize, len: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, len)?;
    unpack_bits(stream, bits, first, len, false, &mut to, 0)?;
    to.freeze(stream)
}

/// Packs each byte, which is 0 or 1, to a bit.
pub fn bits_of_bytes(stream: &Stream, bytes: &Buffer, len: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    pack_bytes(stream, bytes, 0, len, false, &mut to, 0)?;
    to.freeze(stream)
}
