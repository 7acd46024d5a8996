//! Compares the values of an array with a value of their type.

use arrow_schema::DataType;
use crossdock_kernels::{Accept, ByteValues, Checks, ComparedType, Jobs, NumberType, Offsets, Source};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::comparison::{Comparison, Constant};
use super::literal::number_type;
use crate::DeviceArray;
use crate::decode_dictionary::keys_of;
use crate::take::{Slot, Slots, Validity, byte_aligned_bits, expand_runs, merge_validity, take};

/// A set of rows.
pub(crate) enum Mask {
    /// No row.
    None,
    /// All rows.
    All,
    /// The rows whose bits are set, from bit 0 on.
    Bits(Buffer),
}

impl Mask {
    /// The rows that are valid according to a bitmap.
    fn of_validity(stream: &Stream, validity: Option<Validity>, len: usize) -> Result<Self> {
        let Some((bits, first)) = validity else { return Ok(Self::All) };
        byte_aligned_bits(stream, &bits, first, len).map(Self::Bits)
    }
}

/// The values that are not null.
pub(crate) fn valid(stream: &Stream, array: &DeviceArray) -> Result<Mask> {
    matches(stream, array, &Comparison::NotNull)
}

/// The values that fulfil a comparison.
pub(super) fn matches(stream: &Stream, array: &DeviceArray, comparison: &Comparison) -> Result<Mask> {
    if *comparison == Comparison::Never {
        return Ok(Mask::None);
    }
    let len = array.len();
    if len == 0 {
        return Ok(Mask::All);
    }
    match array.data_type() {
        DataType::Dictionary(keys, _) => {
            let values = array.dictionary().ok_or_else(|| Error::internal("no dictionary"))?;
            let codes = keys_of(array, keys)?;
            if values.is_empty() {
                return Ok(Mask::None);
            }
            let of_values = matches(stream, values, comparison)?;
            let wrong = |at| {
                Error::bad_data(format!(
                    "the dictionary key at index {at} is out of range: the dictionary has {} values",
                    values.len()
                ))
            };
            let expand = |truths: &DeviceArray| take(stream, truths, &codes)?.map_err(wrong);
            expanded(stream, of_values, values.len(), &codes, expand)
        }
        DataType::RunEndEncoded(..) => {
            let [ends, values] = array.children() else {
                return Err(Error::internal("a run-end encoded array without run ends"));
            };
            let of_values = matches(stream, values, comparison)?;
            let expand = |truths: &DeviceArray| {
                expand_runs(stream, truths, ends, array.offset() as u64, len)?
                    .map_err(|at| Error::bad_data(format!("the run end at index {at} is invalid")))
            };
            expanded(stream, of_values, values.len(), array, expand)
        }
        _ => {
            let validity = array.validity_bits();
            let bits = match comparison {
                Comparison::With(operator, constant) => compare(stream, array, operator.accept(), constant)?,
                _ => return Mask::of_validity(stream, validity, len),
            };
            let merged = merge_validity(stream, Some((bits, 0)), validity, len)?;
            Mask::of_validity(stream, merged, len)
        }
    }
}

/// Converts a mask of an array's `n` values to a mask of its rows. `codes` has the validity of the
/// rows, and `expand` finds the truth value of each row.
fn expanded(
    stream: &Stream,
    of_values: Mask,
    n: usize,
    codes: &DeviceArray,
    expand: impl Fn(&DeviceArray) -> Result<DeviceArray>,
) -> Result<Mask> {
    let len = codes.len();
    let bits = match of_values {
        Mask::None => return Ok(Mask::None),
        Mask::All => return Mask::of_validity(stream, codes.validity_bits(), len),
        Mask::Bits(bits) => bits,
    };
    let buffers = vec![None, Some(bits)];
    let truths = DeviceArray::try_new(DataType::Boolean, n, 0, Some(0), buffers, Vec::new(), None)?;
    let rows = expand(&truths)?;
    let bits = rows.buffers().get(1).cloned().flatten();
    let merged = merge_validity(stream, bits.map(|bits| (bits, rows.offset())), rows.validity_bits(), len)?;
    Mask::of_validity(stream, merged, len)
}

/// Compares the values of an array without regard to nulls.
fn compare(stream: &Stream, array: &DeviceArray, accept: Accept, constant: &Constant) -> Result<Buffer> {
    let (data_type, len, offset) = (array.data_type(), array.len(), array.offset());
    let other = || {
        Error::internal(format!(
            "a comparison with another type than {data_type}",
            data_type = crate::type_name(data_type)
        ))
    };
    let buffer = |i: usize| array.buffers().get(i).and_then(Option::as_ref);
    let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
    match constant {
        Constant::Bool(truth) => {
            let slot = Slot::of(data_type).filter(|slot| *slot == Slot::Bit).ok_or_else(other)?;
            let bytes = Slots::of(stream, array, slot)?;
            let of = ComparedType::Number(NumberType::UInt8);
            let mut jobs = Jobs::new();
            jobs.compare_numbers(bytes.source(), of, [u64::from(*truth), 0, 0, 0], accept, &mut to, 0)?;
            jobs.launch(stream)?;
        }
        Constant::Number(of, words) => {
            if number_type(data_type).is_none_or(|(number, _)| number != *of) {
                return Err(other());
            }
            let from = Source { buffer: buffer(1), at: offset * of.width_bytes(), len };
            let mut jobs = Jobs::new();
            jobs.compare_numbers(from, *of, *words, accept, &mut to, 0)?;
            jobs.launch(stream)?;
        }
        Constant::Bytes(bytes) => {
            let fill = |target: &mut [u8]| {
                target.copy_from_slice(bytes);
                Ok(())
            };
            let on_device = stream.memory().alloc_with(stream, bytes.len(), fill)?.freeze(stream)?;
            let literal = Source { buffer: Some(&on_device), at: 0, len: bytes.len() };
            let mut sized = array.clone();
            sized.resolve_sizes(stream)?;
            let sized = &sized;
            let buffer = |i: usize| sized.buffers().get(i).and_then(Option::as_ref);
            let all = |i: usize| {
                let buffer = buffer(i);
                Source { buffer, at: 0, len: buffer.and_then(Buffer::len).unwrap_or(0) }
            };
            let validity = array.validity_bits();
            let valid = validity.as_ref().map(|(bits, first)| (bits, *first));
            let mut checks = Checks::new();
            let cell = match data_type {
                DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
                    let is_large = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
                    let offsets = buffer(1).ok_or_else(|| Error::internal("values without offsets"))?;
                    let width_bytes = if is_large { 8 } else { 4 };
                    let offsets = Offsets { buffer: offsets, width_bytes, first: offset, len };
                    checks.compare_bytes(
                        ByteValues::Offsets(offsets, all(2)),
                        valid,
                        literal,
                        accept,
                        &mut to,
                        0,
                    )?
                }
                DataType::FixedSizeBinary(size) => {
                    let size = usize::try_from(*size).map_err(|_| other())?;
                    let data = Source { buffer: buffer(1), at: offset * size, len: len * size };
                    let values = ByteValues::FixedSize { size, len, data };
                    checks.compare_bytes(values, valid, literal, accept, &mut to, 0)?
                }
                DataType::Utf8View | DataType::BinaryView => {
                    let views = buffer(1).ok_or_else(|| Error::internal("values without views"))?;
                    let data: Vec<_> = sized.buffers().iter().skip(2).map(Option::as_ref).collect();
                    stream.fill(&mut to, 0, len.div_ceil(8), 0)?;
                    checks.compare_views(views, offset, len, valid, &data, literal, accept, &mut to, 0)?
                }
                _ => return Err(other()),
            };
            if let Some(at) = checks.run(stream)?.first_wrong(cell) {
                return Err(Error::bad_data(format!(
                    "value {at} of type {data_type} is outside of its data buffers",
                    data_type = crate::type_name(data_type)
                )));
            }
        }
    }
    to.freeze(stream)
}
