//! Values by their numbers, and values in runs, on any device.

mod nested;

use arrow_schema::DataType;
use crossdock_kernels::{Checks, IntType, Jobs, Numbers, Source, pack_bytes, unpack_bits};
use crossdock_memory::{Buffer, Result, Stream};

use crate::DeviceArray;
use nested::Rows;
pub use nested::{Gathered, WrongLists, gather, row_width, takes};

/// How the values of a type lie in their first buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A bit each.
    Bit,
    /// So many bytes each.
    Bytes(usize),
}

impl Slot {
    /// `None` where values are arrays themselves, or of lengths of their own.
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Boolean => Some(Self::Bit),
            DataType::Utf8View | DataType::BinaryView => Some(Self::Bytes(16)),
            other => other.primitive_width().map(Self::Bytes),
        }
    }
}

/// A bitmap that is set where values are valid, and the bit of the first one.
pub type Validity = (Buffer, usize);

/// Values of a slot each, as bytes: bits become a byte each first.
pub struct Slots {
    buffer: Option<Buffer>,
    at: usize,
    /// Bytes of each.
    pub width: usize,
    /// How many.
    pub len: usize,
}

impl Slots {
    /// An array's values, which lie in such slots.
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

    /// Which of its values are valid, a byte each; `None`: all of them.
    pub fn of_validity(stream: &Stream, array: &DeviceArray) -> Result<Option<Self>> {
        let Some((bits, first)) = array.may_be_null() else { return Ok(None) };
        let bytes = bytes_of_bits(stream, &bits, first, array.len())?;
        Ok(Some(Self { buffer: Some(bytes), at: 0, width: 1, len: array.len() }))
    }

    /// Of so many values that are all valid, the same.
    pub fn all_valid(stream: &Stream, len: usize) -> Result<Self> {
        let mut ones = stream.memory().alloc(stream, len)?;
        stream.fill(&mut ones, 0, len, 1)?;
        Ok(Self { buffer: Some(ones.freeze(stream)?), at: 0, width: 1, len })
    }

    /// The number of each of so many rows.
    fn of_rows(stream: &Stream, len: usize) -> Result<Self> {
        let width = row_width(len);
        let buffer = nested::counted(stream, len, 1, width)?;
        Ok(Self { buffer: Some(buffer), at: 0, width, len })
    }

    /// For kernels.
    pub fn source(&self) -> Source<'_> {
        Source { buffer: self.buffer.as_ref(), at: self.at, len: self.len }
    }
}

/// What there is of each value; or the number of the first code, or end, that is not what it can be.
pub type Taken = std::result::Result<DeviceArray, u64>;

/// The values that codes (integers of any width) number; null where the code is, or its value. Blocks until it is known that
/// every code numbers one.
///
/// # Errors
/// `values` are of a type whose rows are not taken (see [`takes`]).
pub fn take(stream: &Stream, values: &DeviceArray, codes: &DeviceArray) -> Result<Taken> {
    let len = codes.len();
    let Some(names) = numbers(codes) else { return DeviceArray::empty(values.data_type()).map(Ok) };
    let valid = codes.may_be_null();
    if let Some(at) = first_negative(stream, values, codes, names)? {
        return Ok(Err(at));
    }
    let lead = |slots: &Slots| {
        let mut to = stream.memory().alloc(stream, len.saturating_mul(slots.width))?;
        let mut checks = Checks::new();
        let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
        let cell = checks.take(names, valid, slots.source(), &mut to, 0, slots.width)?;
        match checks.run(stream)?.first_wrong(cell) {
            None => to.freeze(stream).map(Ok),
            Some(at) => Ok(Err(at)),
        }
    };
    led(stream, values, len, valid.clone(), &lead)
}

/// The first code that has a sign and numbers nothing: read without its sign it might number another value.
fn first_negative(
    stream: &Stream,
    values: &DeviceArray,
    codes: &DeviceArray,
    names: Numbers<'_>,
) -> Result<Option<u64>> {
    if !codes.data_type().is_signed_integer() {
        return Ok(None);
    }
    let of = IntType { width_bytes: names.width_bytes, signed: true };
    let valid = codes.may_be_null();
    let valid = valid.as_ref().map(|(bits, first)| (bits, *first));
    let mut checks = Checks::new();
    let cell = checks.indices(names.buffer, of, codes.offset(), codes.len(), valid, values.len() as u64)?;
    Ok(checks.run(stream)?.first_wrong(cell))
}

/// For each of `len` places, from place `first` on, the value of the run that it is in: the first whose end (integers of any
/// width, which rise) is above it. Blocks until it is known that they do, and that the last reaches the last place.
///
/// # Errors
/// `values` are of a type whose rows are not taken (see [`takes`]).
pub fn expand_runs(
    stream: &Stream,
    values: &DeviceArray,
    ends: &DeviceArray,
    first: u64,
    len: usize,
) -> Result<Taken> {
    let lead = |slots: &Slots| {
        let mut to = stream.memory().alloc(stream, len.saturating_mul(slots.width))?;
        let wrong = match numbers(ends) {
            Some(ends) => {
                let mut checks = Checks::new();
                let cell = checks.expand_runs(ends, first, slots.source(), &mut to, 0, len, slots.width)?;
                checks.run(stream)?.first_wrong(cell)
            }
            None => (len > 0).then_some(0),
        };
        match wrong {
            None => to.freeze(stream).map(Ok),
            Some(at) => Ok(Err(at)),
        }
    };
    led(stream, values, len, None, &lead)
}

/// From values to those that are wanted of them, in order.
type Lead<'a> = dyn Fn(&Slots) -> Result<std::result::Result<Buffer, u64>> + 'a;

fn led(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    lead: &Lead<'_>,
) -> Result<Taken> {
    let values = &resolved(stream, values)?;
    let data_type = values.data_type();
    let Some(slot) = Slot::of(data_type) else { return led_rows(stream, values, len, outer, lead) };
    let mut made = match lead(&Slots::of(stream, values, slot)?)? {
        Ok(made) => made,
        Err(wrong) => return Ok(Err(wrong)),
    };
    if slot == Slot::Bit {
        made = bits_of_bytes(stream, &made, len)?;
    }
    let validity = match led_validity(stream, values, len, outer, lead)? {
        Ok(validity) => validity,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let null_count = if validity.is_none() { Some(0) } else { None };
    let bits = aligned(stream, validity.as_ref(), len)?;
    let variadic = values.layout().variadic;
    let data = values.buffers().iter().skip(2).filter(|_| variadic).cloned();
    let buffers = [bits, Some(made)].into_iter().chain(data).collect();
    DeviceArray::try_new(data_type.clone(), len, 0, null_count, buffers, Vec::new(), None).map(Ok)
}

/// The same array, with the lengths of all that views point into, which a stranger's tell apart from the buffers.
fn resolved(stream: &Stream, array: &DeviceArray) -> Result<DeviceArray> {
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    Ok(array)
}

/// Of values that are arrays themselves: what leads to values leads to the numbers of their rows, too.
fn led_rows(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    lead: &Lead<'_>,
) -> Result<Taken> {
    nested::check_takes(values.data_type())?;
    let numbered = Slots::of_rows(stream, values.len())?;
    let rows = match lead(&numbered)? {
        Ok(rows) => rows,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let rows = Rows { buffer: &rows, len, width: numbered.width, valid: outer.as_ref() };
    nested::take_rows(stream, values, rows).map(Ok)
}

/// Where what is wanted of values is valid: `outer` says it of what was named, `lead` leads to what the values say.
fn led_validity(
    stream: &Stream,
    values: &DeviceArray,
    len: usize,
    outer: Option<Validity>,
    lead: &Lead<'_>,
) -> Result<std::result::Result<Option<Validity>, u64>> {
    let inner = match Slots::of_validity(stream, values)? {
        Some(valid) => match lead(&valid)? {
            Ok(bytes) => Some((bits_of_bytes(stream, &bytes, len)?, 0)),
            Err(wrong) => return Ok(Err(wrong)),
        },
        None => None,
    };
    both(stream, outer, inner, len).map(Ok)
}

/// A bitmap from its first bit on.
fn aligned(stream: &Stream, validity: Option<&Validity>, len: usize) -> Result<Option<Buffer>> {
    validity.map(|(bits, first)| from_first_bit(stream, bits, *first, len)).transpose()
}

/// Whole numbers of an array of integers; `None` where there are none.
pub fn numbers(array: &DeviceArray) -> Option<Numbers<'_>> {
    let width_bytes = array.data_type().primitive_width()?;
    let buffer = array.buffers().get(1)?.as_ref().filter(|_| !array.is_empty())?;
    Some(Numbers { buffer, at: array.offset() * width_bytes, len: array.len(), width_bytes })
}

impl DeviceArray {
    /// Its validity, unless it is known to have no nulls.
    pub fn may_be_null(&self) -> Option<Validity> {
        if self.null_count() == Some(0) || !self.layout().has_validity || self.is_empty() {
            return None;
        }
        Some((self.buffers().first()?.clone()?, self.offset()))
    }
}

/// What is valid in both, of `len` values.
pub fn both(
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

/// Bits from `first` on, where they begin a byte: as they lie if they do, else moved.
pub fn from_first_bit(stream: &Stream, bits: &Buffer, first: usize, len: usize) -> Result<Buffer> {
    if first.is_multiple_of(8) {
        return bits.slice(first / 8, len.div_ceil(8));
    }
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    let mut jobs = Jobs::new();
    jobs.shift_bits(bits, first, len, &mut to, 0)?;
    jobs.launch(stream)?;
    to.freeze(stream)
}

/// A byte for each bit.
fn bytes_of_bits(stream: &Stream, bits: &Buffer, first: usize, len: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, len)?;
    unpack_bits(stream, bits, first, len, false, &mut to, 0)?;
    to.freeze(stream)
}

/// A bit for each byte.
pub fn bits_of_bytes(stream: &Stream, bytes: &Buffer, len: usize) -> Result<Buffer> {
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    pack_bytes(stream, bytes, 0, len, false, &mut to, 0)?;
    to.freeze(stream)
}
