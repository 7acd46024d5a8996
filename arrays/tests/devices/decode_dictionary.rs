//! Tests decoding of dictionaries of every value type on every device, with arrow-rs as the
//! reference.

use crate::common::{Fixture, field_of, samples};
use arrow_array::types::{ArrowDictionaryKeyType, Int8Type, Int64Type, UInt16Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, make_array};
use arrow_buffer::ArrowNativeType;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{DataType, Field};
use crossdock_arrays::metadata::with_dictionary_values;
use crossdock_arrays::{DeviceBatch, Error, decode_dictionary, decoded_field};
use crossdock_memory::Stream;
use crossdock_test_support::devices;
use std::sync::Arc;

const KEYS: [Option<usize>; 9] =
    [Some(10), None, Some(0), Some(1), Some(1), Some(6), None, Some(10), Some(3)];

fn dictionary<K: ArrowDictionaryKeyType>(values: &ArrayRef, keys: &[Option<usize>]) -> ArrayRef {
    let keys = keys.iter().map(|key| key.map(K::Native::usize_as));
    Arc::new(DictionaryArray::<K>::new(PrimitiveArray::from_iter(keys), values.clone()))
}

/// Takes the values for the keys with arrow-rs.
fn expected(values: &ArrayRef, keys: &[Option<usize>]) -> ArrayRef {
    let data = values.to_data();
    let mut all = MutableArrayData::new(vec![&data], true, keys.len());
    for key in keys {
        match key {
            Some(key) => all.try_extend(0, *key, *key + 1).unwrap(),
            None => all.try_extend_nulls(1).unwrap(),
        }
    }
    make_array(all.freeze())
}

/// Decodes a column on the stream's device and exports it to arrow-rs.
fn decoded(fixture: &Fixture, array: &ArrayRef, stream: &Stream) -> Result<ArrayRef, Error> {
    let batch = fixture.batch(std::slice::from_ref(array)).move_to(stream, stream.device())?;
    let column = decode_dictionary(batch.column(0).unwrap(), stream)?;
    let field = decoded_field(batch.schema().field(0), true)?;
    let schema = Arc::new(arrow_schema::Schema::new(vec![field.clone()]));
    let on_device =
        DeviceBatch::try_new(schema, column.len(), vec![column])?.with_default_device(stream.device())?;
    assert_eq!(on_device.device(), stream.device());
    let on_cpu = on_device.move_to(stream, crossdock_memory::Device::CPU)?;
    stream.synchronize()?;
    Ok(fixture.export(on_cpu.column(0).unwrap(), &field))
}

/// Whether dictionaries with values of a type can be decoded. Unions and run-end encoded arrays
/// cannot represent null keys, because they have no validity bitmap.
fn is_decoded(data_type: &DataType) -> bool {
    use DataType::*;
    !matches!(data_type, Union(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_))
}

#[test]
fn decodes_values_of_every_type() {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        let stream = fixture.host.stream(device);
        for values in samples::all() {
            let what = format!("{} on {device}", values.data_type());
            let arrays = [
                dictionary::<Int8Type>(&values, &KEYS),
                dictionary::<UInt16Type>(&values, &KEYS),
                dictionary::<Int64Type>(&values, &KEYS),
            ];
            if !is_decoded(values.data_type()) {
                let error = decoded(&fixture, &arrays[0], &stream).unwrap_err();
                assert!(error.message().contains("with values of type"), "{what}: {error}");
                continue;
            }
            for array in &arrays {
                assert_eq!(&decoded(&fixture, array, &stream).unwrap(), &expected(&values, &KEYS), "{what}");
            }
            let (part, keys) = (arrays[0].slice(3, 5), &KEYS[3..8]);
            assert_eq!(
                &decoded(&fixture, &part, &stream).unwrap(),
                &expected(&values, keys),
                "{what}, a slice"
            );
            // Repeat the test with a dictionary that is a slice.
            let some = values.slice(2, 9);
            let keys = [Some(8), Some(0), None];
            let array = dictionary::<UInt16Type>(&some, &keys);
            assert_eq!(
                &decoded(&fixture, &array, &stream).unwrap(),
                &expected(&some, &keys),
                "{what}, values sliced"
            );
            let none = decoded(&fixture, &array.slice(1, 0), &stream).unwrap();
            assert_eq!((none.len(), none.data_type()), (0, values.data_type()), "{what}");
        }
    }
}

#[test]
fn error_for_key_out_of_range_names_its_index() {
    for device in devices().iter().copied() {
        let fixture = Fixture::new();
        let stream = fixture.host.stream(device);
        let values: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a", "b"]));
        for bad in [-1i8, 2, i8::MAX] {
            let keys = arrow_array::Int8Array::from(vec![Some(0), None, Some(bad)]);
            // SAFETY: only the function under test reads the invalid key, and it does not trust its
            // input.
            let array = unsafe { DictionaryArray::<Int8Type>::new_unchecked(keys, values.clone()) };
            let error = decoded(&fixture, &(Arc::new(array) as ArrayRef), &stream).unwrap_err();
            assert!(
                error.message().contains("key at index 2 is out of range: the dictionary has 2"),
                "{error}"
            );
        }
    }
}

#[test]
fn decoded_field_merges_metadata_of_field_and_values() {
    let of_values = [("ARROW:extension:name", "of values"), ("k", "of values")];
    let of_values = of_values.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let of_field = [("k".to_string(), "of field".to_string())].into_iter().collect();
    let values: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a"]));
    let field = field_of(0, &dictionary::<Int8Type>(&values, &[Some(0)])).with_nullable(false);
    let field = field.with_metadata(with_dictionary_values(of_field, &of_values));
    let decoded = decoded_field(&field, false).unwrap();
    assert_eq!(
        (decoded.name(), decoded.data_type(), decoded.is_nullable()),
        (field.name(), &DataType::Utf8, false)
    );
    let metadata: Vec<_> = [("ARROW:extension:name", "of values"), ("k", "of field")].into();
    assert_eq!(decoded.metadata().len(), metadata.len());
    assert!(metadata.iter().all(|(k, v)| decoded.metadata().get(k).is_some_and(|value| value == v)));
    assert!(decoded_field(&field, true).unwrap().is_nullable());
    assert!(decoded_field(&Field::new("n", DataType::Int8, true), false).is_err());
}
