//! Dictionary-encoded columns of values of every type, decoded on every device.

use crate::common::{Dock, field_of, samples};
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

/// What arrow-rs makes of the same keys.
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

/// Decoded on the stream's device, back in host memory.
fn decoded(dock: &Dock, array: &ArrayRef, stream: &Stream) -> Result<ArrayRef, Error> {
    let batch = dock.batch(std::slice::from_ref(array)).move_to(stream, stream.device())?;
    let column = decode_dictionary(batch.column(0).unwrap(), stream)?;
    let field = decoded_field(batch.schema().field(0), true)?;
    let schema = Arc::new(arrow_schema::Schema::new(vec![field.clone()]));
    let there = DeviceBatch::try_new(schema, column.len(), vec![column])?.lying_on(stream.device())?;
    assert_eq!(there.device(), stream.device());
    let here = there.move_to(stream, crossdock_memory::Device::CPU)?;
    stream.synchronize()?;
    Ok(dock.export(here.column(0).unwrap(), &field))
}

/// What arrow-rs has no null of but its values': there are no unions that are null.
fn is_decoded(data_type: &DataType) -> bool {
    use DataType::*;
    !matches!(data_type, Union(..) | RunEndEncoded(..) | ListView(_) | LargeListView(_))
}

#[test]
fn values_of_every_type_stand_where_their_keys_did() {
    for device in devices().iter().copied() {
        let dock = Dock::new();
        let stream = dock.host.stream(device);
        for values in samples::all() {
            let what = format!("{} on {device}", values.data_type());
            let arrays = [
                dictionary::<Int8Type>(&values, &KEYS),
                dictionary::<UInt16Type>(&values, &KEYS),
                dictionary::<Int64Type>(&values, &KEYS),
            ];
            if !is_decoded(values.data_type()) {
                let refused = decoded(&dock, &arrays[0], &stream).unwrap_err();
                assert!(refused.message().contains("values are of type"), "{what}: {refused}");
                continue;
            }
            for array in &arrays {
                assert_eq!(&decoded(&dock, array, &stream).unwrap(), &expected(&values, &KEYS), "{what}");
            }
            let (part, keys) = (arrays[0].slice(3, 5), &KEYS[3..8]);
            assert_eq!(&decoded(&dock, &part, &stream).unwrap(), &expected(&values, keys), "{what}, a slice");
            // The dictionary is a slice, too.
            let some = values.slice(2, 9);
            let keys = [Some(8), Some(0), None];
            let array = dictionary::<UInt16Type>(&some, &keys);
            assert_eq!(
                &decoded(&dock, &array, &stream).unwrap(),
                &expected(&some, &keys),
                "{what}, values sliced"
            );
            let none = decoded(&dock, &array.slice(1, 0), &stream).unwrap();
            assert_eq!((none.len(), none.data_type()), (0, values.data_type()), "{what}");
        }
    }
}

#[test]
fn a_key_that_points_at_no_value_is_named_by_its_number() {
    for device in devices().iter().copied() {
        let dock = Dock::new();
        let stream = dock.host.stream(device);
        let values: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a", "b"]));
        for bad in [-1i8, 2, i8::MAX] {
            let keys = arrow_array::Int8Array::from(vec![Some(0), None, Some(bad)]);
            // SAFETY: what is wrong with it is looked at by nobody but the function under test.
            let array = unsafe { DictionaryArray::<Int8Type>::new_unchecked(keys, values.clone()) };
            let refused = decoded(&dock, &(Arc::new(array) as ArrayRef), &stream).unwrap_err();
            assert!(
                refused.message().contains("key number 2 points at none of the dictionary's 2"),
                "{refused}"
            );
        }
    }
}

#[test]
fn the_field_has_the_values_type_and_metadata_besides_its_own() {
    let of_values = [("ARROW:extension:name", "of values"), ("k", "theirs")];
    let of_values = of_values.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let own = [("k".to_string(), "own".to_string())].into_iter().collect();
    let values: ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["a"]));
    let field = field_of(0, &dictionary::<Int8Type>(&values, &[Some(0)])).with_nullable(false);
    let field = field.with_metadata(with_dictionary_values(own, &of_values));
    let decoded = decoded_field(&field, false).unwrap();
    assert_eq!(
        (decoded.name(), decoded.data_type(), decoded.is_nullable()),
        (field.name(), &DataType::Utf8, false)
    );
    let metadata: Vec<_> = [("ARROW:extension:name", "of values"), ("k", "own")].into();
    assert_eq!(decoded.metadata().len(), metadata.len());
    assert!(metadata.iter().all(|(k, v)| decoded.metadata().get(k).is_some_and(|value| value == v)));
    assert!(decoded_field(&field, true).unwrap().is_nullable());
    assert!(decoded_field(&Field::new("n", DataType::Int8, true), false).is_err());
}
