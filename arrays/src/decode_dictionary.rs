//! Decodes dictionary-encoded columns on any device.

use arrow_schema::{DataType, Field, Metadata};
use crossdock_memory::{Error, Result, Stream};

use crate::DeviceArray;
use crate::nulls::stream_on;
use crate::take::{can_take, from_plain, plain_type, take, to_plain};

/// Returns the field of a decoded column. `has_nulls` is true if one of the column's dictionaries
/// contains a null. The field has the metadata of the column and the metadata of the dictionary's
/// values. If both contain the same key, the column's pair is used.
///
/// # Errors
/// Returns an error if the field's type is not a dictionary.
pub fn decoded_field(field: &Field, has_nulls: bool) -> Result<Field> {
    let DataType::Dictionary(_, values) = field.data_type() else {
        return Err(not_a_dictionary(field.data_type()));
    };
    let of_values = crate::metadata::of_dictionary_values(field.metadata());
    let of_column = field.metadata().iter().filter(|(key, _)| *key != crate::metadata::DICTIONARY_VALUES);
    let all = of_values.iter().chain(of_column).map(|(key, value)| (key.clone(), value.clone()));
    let metadata: Metadata = all.collect();
    let nullable = field.is_nullable() || has_nulls;
    Ok(Field::new(field.name(), values.as_ref().clone(), nullable).with_metadata(metadata))
}

/// Replaces each key by its value, on the array's device. Blocks until all keys are checked. If the
/// values are dictionary-encoded themselves, they stay encoded.
///
/// # Errors
/// Returns an error if the array's type is not a dictionary, if a key is out of range, or if rows
/// of the value type cannot be taken (see [`can_take`](crate::take::can_take)).
pub fn decode_dictionary(array: &DeviceArray, stream: &Stream) -> Result<DeviceArray> {
    let (DataType::Dictionary(keys, data_type), Some(values)) = (array.data_type(), array.dictionary())
    else {
        return Err(not_a_dictionary(array.data_type()));
    };
    if array.is_empty() {
        return DeviceArray::empty(data_type);
    }
    let stream = &stream_on(array.device(), stream)?;
    let keys = keys_of(array, keys)?;
    let out_of_range = |at| {
        Error::bad_data(format!(
            "the dictionary key at index {at} is out of range: the dictionary has {} values",
            values.len()
        ))
    };
    if let (DataType::Dictionary(inner, _), Some(dictionary)) = (values.data_type(), values.dictionary()) {
        let codes = take(stream, &keys_of(values, inner)?, &keys)?.map_err(out_of_range)?;
        let (len, offset, nulls) = (codes.len(), codes.offset(), codes.null_count());
        let buffers = codes.buffers().to_vec();
        let (of, dictionary) = (values.data_type().clone(), dictionary.clone());
        return DeviceArray::try_new(of, len, offset, nulls, buffers, Vec::new(), Some(dictionary));
    }
    let plain = plain_type(data_type);
    if !can_take(&plain) {
        return Err(Error::unsupported(format!(
            "cannot decode a dictionary with values of type {data_type}",
            data_type = crate::type_name(data_type)
        )));
    }
    let mut values = values.clone();
    values.resolve_sizes(stream)?;
    let taken = take(stream, &to_plain(&values, stream)?, &keys)?.map_err(out_of_range)?;
    from_plain(&taken, data_type, stream)
}

fn not_a_dictionary(data_type: &DataType) -> Error {
    Error::invalid_argument(format!(
        "expected a dictionary, got {data_type}",
        data_type = crate::type_name(data_type)
    ))
}

/// Returns the keys of a dictionary-encoded array as an array of integers. The buffers are shared.
///
/// # Errors
/// Returns an error if the array's type is not a dictionary.
pub fn dictionary_keys(array: &DeviceArray) -> Result<DeviceArray> {
    match array.data_type() {
        DataType::Dictionary(keys, _) => keys_of(array, keys),
        other => Err(not_a_dictionary(other)),
    }
}

/// Returns the keys of a dictionary-encoded array as an array of integers.
pub(crate) fn keys_of(array: &DeviceArray, keys: &DataType) -> Result<DeviceArray> {
    let (len, offset, nulls) = (array.len(), array.offset(), array.null_count());
    DeviceArray::try_new(keys.clone(), len, offset, nulls, array.buffers().to_vec(), Vec::new(), None)
}
