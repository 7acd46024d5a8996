//! Replaces nulls by a value.

use arrow_schema::DataType;
use crossdock_kernels::{Jobs, Source, unpack_bits};
use crossdock_memory::{Buffer, Error, Result, Stream};

use super::filter_rows::first_true;
use super::{batch_of, with_validity};
use crate::decode_dictionary::keys_of;
use crate::filter::{Literal, Mask, valid, value_bytes};
use crate::nulls::stream_on;
use crate::take::{Slot, Slots, Validity, bits_of_bytes, row_width, sequence, take_in_range};
use crate::{DeviceArray, DeviceBatch};

/// Replaces each null by `value`, which must be a value of the array's type or, for dictionaries
/// and run-end encoded arrays, of the type of their values. An array without nulls is not copied.
///
/// # Errors
/// Returns an error if `value` is no value of the type, or if the type is nested.
pub fn fill_null(array: &DeviceArray, value: &Literal, stream: &Stream) -> Result<DeviceArray> {
    let stream = &stream_on(array.device(), stream)?;
    let mut array = array.clone();
    array.resolve_sizes(stream)?;
    let array = &array;
    match array.data_type() {
        DataType::RunEndEncoded(..) => {
            let [ends, values] = array.children() else {
                return Err(Error::internal("a run-end encoded array without run ends"));
            };
            let children = vec![ends.clone(), fill_null(values, value, stream)?];
            let (of, len, offset) = (array.data_type().clone(), array.len(), array.offset());
            DeviceArray::try_new(of, len, offset, Some(0), Vec::new(), children, None)
        }
        DataType::Dictionary(keys, values) => fill_dictionary(array, keys, values, value, stream),
        data_type => {
            let bytes = value_bytes(data_type, value)?;
            fill_bytes(array, &bytes, stream)
        }
    }
}

/// Replaces each null by a value of the array's type.
pub(super) fn fill_bytes(array: &DeviceArray, value: &[u8], stream: &Stream) -> Result<DeviceArray> {
    if array.count_nulls(stream)? == 0 {
        return without_nulls(array);
    }
    let Some(validity) = array.validity_bits() else { return without_nulls(array) };
    let (len, slot) = (array.len(), Slot::of(array.data_type()));
    let is_view = matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
    let width = match slot {
        Some(Slot::Bit) => Some(1),
        Some(Slot::Bytes(width @ (1 | 2 | 4 | 8 | 16 | 32))) if !is_view => Some(width),
        _ => None,
    };
    let (Some(slot), Some(width)) = (slot, width) else { return fill_rows(array, value, &validity, stream) };
    let slots = Slots::of(stream, array, slot)?;
    let filled = fill(stream, slots.source(), width, &validity, value)?;
    let values = if slot == Slot::Bit { bits_of_bytes(stream, &filled, len)? } else { filled };
    let buffers = vec![None, Some(values)];
    DeviceArray::try_new(array.data_type().clone(), len, 0, Some(0), buffers, Vec::new(), None)
}

/// Fills values of a fixed width.
fn fill(
    stream: &Stream,
    from: Source<'_>,
    width: usize,
    validity: &Validity,
    value: &[u8],
) -> Result<Buffer> {
    let mut words = [[0; 8]; 4];
    words.as_flattened_mut().iter_mut().zip(value).for_each(|(to, byte)| *to = *byte);
    let mut to = stream.memory().alloc(stream, from.len.saturating_mul(width))?;
    let mut jobs = Jobs::new();
    jobs.fill_nulls(from, width, (&validity.0, validity.1), words.map(u64::from_le_bytes), &mut to, 0)?;
    jobs.launch(stream)?;
    to.freeze(stream)
}

/// The array as one without nulls.
fn without_nulls(array: &DeviceArray) -> Result<DeviceArray> {
    if array.layout().has_validity { with_validity(array, None) } else { Ok(array.clone()) }
}

/// Appends the value to the array, and takes it instead of each null.
fn fill_rows(array: &DeviceArray, value: &[u8], validity: &Validity, stream: &Stream) -> Result<DeviceArray> {
    let (all, len) = (appended(array, value, stream)?, array.len());
    let width = row_width(all.len());
    let rows = sequence(stream, len, 1, width)?;
    let rows = Source { buffer: Some(&rows), at: 0, len };
    let rows = fill(stream, rows, width, validity, &(len as u64).to_le_bytes())?;
    without_nulls(&take_in_range(stream, &all, &rows, len, width)?)
}

/// The values of an array, and one more.
fn appended(array: &DeviceArray, value: &[u8], stream: &Stream) -> Result<DeviceArray> {
    let one = one_value(array.data_type(), value, stream)?;
    if array.is_empty() {
        return Ok(one);
    }
    let both = DeviceBatch::concatenate(&[batch_of(array)?, batch_of(&one)?], stream)?;
    both.into_columns().pop().ok_or_else(|| Error::internal("a concatenated batch without columns"))
}

/// An array of one value, which is given by its bytes.
fn one_value(data_type: &DataType, value: &[u8], stream: &Stream) -> Result<DeviceArray> {
    let put = |bytes: &[u8]| {
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        stream.memory().alloc_with(stream, bytes.len(), fill)?.freeze(stream)
    };
    let too_long = || Error::invalid_argument("the value has more bytes than an array of its type");
    let len32 = || i32::try_from(value.len()).map(i32::to_le_bytes).map_err(|_| too_long());
    let buffers = match data_type {
        DataType::Utf8 | DataType::Binary => vec![put(&[[0; 4], len32()?].concat())?, put(value)?],
        DataType::LargeUtf8 | DataType::LargeBinary => {
            vec![put(&[[0; 8], (value.len() as u64).to_le_bytes()].concat())?, put(value)?]
        }
        DataType::Utf8View | DataType::BinaryView if value.len() <= 12 => {
            let mut view = [len32()?.as_slice(), value].concat();
            view.resize(16, 0);
            vec![put(&view)?]
        }
        DataType::Utf8View | DataType::BinaryView => {
            let prefix = value.get(..4).unwrap_or_default();
            vec![put(&[len32()?.as_slice(), prefix, &[0; 8]].concat())?, put(value)?]
        }
        _ => vec![put(value)?],
    };
    let buffers = std::iter::once(None).chain(buffers.into_iter().map(Some)).collect();
    DeviceArray::try_new(data_type.clone(), 1, 0, Some(0), buffers, Vec::new(), None)
}

/// Appends the value to the dictionary, and refers to it with each null key.
fn fill_dictionary(
    array: &DeviceArray,
    keys: &DataType,
    values: &DataType,
    value: &Literal,
    stream: &Stream,
) -> Result<DeviceArray> {
    let bytes = value_bytes(values, value)?;
    let dictionary = array.dictionary().ok_or_else(|| Error::internal("no dictionary"))?;
    let mut dictionary = fill_bytes(dictionary, &bytes, stream)?;
    let mut filled = keys_of(array, keys)?;
    if array.count_nulls(stream)? > 0 {
        let key = dictionary.len();
        let bits = keys.primitive_width().unwrap_or(8) * 8 - usize::from(keys.is_signed_integer());
        if bits < 64 && key >> bits != 0 {
            return Err(Error::unsupported(format!(
                "the dictionary has {key} values, and keys of type {keys} cannot address one more: decode it first"
            )));
        }
        dictionary = appended(&dictionary, &bytes, stream)?;
        filled = fill_bytes(&filled, &(key as u64).to_le_bytes(), stream)?;
    }
    let buffers = std::iter::once(None).chain(filled.buffers().iter().skip(1).cloned()).collect();
    let (of, len, offset) = (array.data_type().clone(), array.len(), filled.offset());
    DeviceArray::try_new(of, len, offset, Some(0), buffers, Vec::new(), Some(dictionary))
}

/// The booleans that are true for each null, without nulls. A value is also null if its value in
/// the dictionary, or its run, is null.
pub fn null_mask(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (stream, len) = (&stream_on(array.device(), stream)?, array.len());
    if len == 0 {
        return DeviceArray::empty(&DataType::Boolean);
    }
    let all = |byte: u8| {
        let mut to = stream.memory().alloc(stream, len.div_ceil(8))?;
        stream.fill(&mut to, 0, len.div_ceil(8), byte)?;
        to.freeze(stream)
    };
    let bits = match valid(stream, array)? {
        _ if *array.data_type() == DataType::Null => all(0xff)?,
        Mask::None => all(0xff)?,
        Mask::All => all(0)?,
        Mask::Bits(bits) => {
            let mut inverse = stream.memory().alloc(stream, len)?;
            unpack_bits(stream, &bits, 0, len, true, &mut inverse, 0)?;
            bits_of_bytes(stream, &inverse.freeze(stream)?, len)?
        }
    };
    DeviceArray::try_new(DataType::Boolean, len, 0, Some(0), vec![None, Some(bits)], Vec::new(), None)
}

/// The index of the first value that [`null_mask`] marks. An array without a bitmap is not read.
pub fn first_null(array: &DeviceArray, stream: &Stream) -> Result<Option<u64>> {
    if array.is_empty() {
        return Ok(None);
    }
    let stream = &stream_on(array.device(), stream)?;
    match valid(stream, array)? {
        Mask::All if *array.data_type() != DataType::Null => Ok(None),
        Mask::Bits(_) | Mask::All | Mask::None => first_true(&null_mask(array, stream)?, stream),
    }
}
